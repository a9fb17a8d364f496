"""SpeechLM as one GGUF file: language model, heads, stream embeddings, audio tower, adaptor, codec, small files.

The language model has llama.cpp's keys and names. Its output matrix is in two parts: a row of audio needs only the part
for special and codec tokens. This file reads both forms of a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from workbench.conversion.files import LANGUAGE_FILES, embedded_files, small_files
from workbench.conversion.language import plan_network
from workbench.conversion.language_network import EMBEDDINGS, OUTPUT
from workbench.conversion.plan import Plan, PlannedTensor, Rows, Value
from workbench.conversion.speechlm_audio import AudioPart, plan_codec, plan_tower
from workbench.conversion.tensors import tensor_rows
from workbench.core.errors import BadInput
from workbench.families.gguf_files import LANGUAGE_ARCHITECTURE
from workbench.families.speechlm.directory import VLLM_CONFIG
from workbench.families.speechlm.model import SpeechLmModel, read_speechlm
from workbench.formats.quantization import Kind
from workbench.runtimes.gguf.networks.speechlm_heads import CODEC_HEAD, STREAMS, TEXT_HEAD
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions
from workbench.runtimes.pytorch.checkpoints.speechlm_weights import SpeechLmTensors, read_tensors
from workbench.runtimes.pytorch.speechlm import architecture, check_audio_tensors, codec_source, stream_table
from workbench.speech.head_rows import HeadRows

ARCHITECTURE = "speechlm"
FILES = (*LANGUAGE_FILES, "preprocessor_config.json")
OWN_FILES = (*FILES, VLLM_CONFIG, "*.yaml")  # ESPnet's settings of training and inference


def plans(directory: Path, layout: str) -> list[Plan]:
    """Returns the plan of a checkpoint directory of either form.

    Raises `BadInput` for a bad checkpoint, `Unavailable` if the weights of its codec are not on this machine.
    """
    if layout == "funasr":
        raise BadInput(f"FunASR has no layout for {directory.name}, a SpeechLM; leave --layout out")
    model = read_speechlm(directory)
    parts = read_tensors(model.weights)
    values, tensors = plan_language(model, parts)
    notes: list[str] = []
    for part in _audio(model, parts):
        values |= part.values
        tensors += part.tensors
        notes += part.notes
    values = {LANGUAGE_ARCHITECTURE: "qwen3", **values, **embedded_files("speechlm", _files(model))}
    other_folders = {folder for folder in model.folders.values() if not folder.is_relative_to(directory)}
    return [Plan(ARCHITECTURE, values, tensors, notes=notes, sources=sorted(other_folders))]


def _audio(model: SpeechLmModel, parts: SpeechLmTensors) -> Iterator[AudioPart]:
    """Plans those parts that the checkpoint has: the audio tower with its adaptor, and the codec."""
    check_audio_tensors(model, parts)
    if model.tower is not None:
        yield plan_tower(model.tower, parts.audio, model.hidden_size, parts.where, parts.files)
    codec = codec_source(model, parts)
    if codec is not None:
        yield plan_codec(codec.settings, codec.tensors, model.layout.streams, codec.where, codec.files)


def _files(model: SpeechLmModel) -> dict[str, Path | bytes]:
    """Returns the small files of the checkpoint and of the folders that it names, where its readers look for them.

    A tokenizer in the older form of two files gets a `tokenizer.json`, which is read without torch.
    """
    files: dict[str, Path | bytes] = {**small_files(model.directory, OWN_FILES)}
    for name, folder in model.folders.items():
        relative = PurePosixPath(name)
        is_inside = not relative.is_absolute() and ".." not in relative.parts
        target_folder = str(relative) if is_inside else folder.name
        files |= small_files(folder, FILES, target_folder)
        if f"{target_folder}/vocab.json" in files and f"{target_folder}/tokenizer.json" not in files:
            definition = json.dumps(model.tokenizer.language.definition, ensure_ascii=False)
            files[f"{target_folder}/tokenizer.json"] = definition.encode()
    return files


def plan_language(model: SpeechLmModel, parts: SpeechLmTensors) -> tuple[dict[str, Value], list[PlannedTensor]]:
    """Plans the language model, its heads and the stream embeddings.

    Raises `BadInput` for a model that llama.cpp's network computes differently, and for missing or misshapen tensors.
    """
    regions = mapped_regions(*parts.files)
    where = parts.where
    values, network = plan_network(
        model.language,
        architecture(model, where),
        parts.language,
        lambda _, tensor: tensor_rows(tensor, regions),
        where,
        f"the configuration of {model.directory.name}",
    )
    layout, width = model.layout, model.hidden_size
    # Both heads are parts of one matrix; a checkpoint with tied weights has only the embedding table.
    matrix = parts.language.get(OUTPUT, parts.language.get(EMBEDDINGS))
    assert matrix is not None  # plan_network has checked it
    rows = tensor_rows(matrix, regions)
    text = layout.codec_first - layout.text_first
    codec = HeadRows(layout).count
    streams = stream_table(model, parts)
    return values, [
        *(tensor for tensor in network if tensor.name != "output.weight"),
        PlannedTensor(TEXT_HEAD, (text, width), Kind.TABLE, _without(rows, layout.text_first, 0, 0)),
        PlannedTensor(CODEC_HEAD, (codec, width), Kind.EXACT, _without(rows, 0, layout.text_first, layout.codec_first)),
        PlannedTensor(STREAMS, (layout.streams, width), Kind.EXACT, tensor_rows(streams, regions)),
    ]


def _without(rows: Rows, start: int, first: int, end: int) -> Rows:
    """Returns the rows of a tensor from `start` on without those from `first` to `end` (exclusive)."""

    def part(part_first: int, part_end: int) -> np.ndarray:
        part_first, part_end = start + part_first, start + part_end
        if not first < end or part_end <= first:
            return rows(part_first, part_end)
        skipped = end - first
        if part_first >= first:
            return rows(part_first + skipped, part_end + skipped)
        return np.concatenate([rows(part_first, first), rows(end, part_end + skipped)])

    return part
