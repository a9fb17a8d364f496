"""SpeechLM as a directory for vLLM: either form of the checkpoint as a Qwen3 model's directory, with tower and codec.

`config.json` describes the language model alone, for vLLM. `speechlm.json` describes the whole model in the form of
the published directories, so this project's reader takes the directory for a checkpoint. All tensors have the
checkpoint's names and types; the codec's are among them. The weights of the training's loss are left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from workbench.conversion.language_network import OUTPUT, expected_tensors, without_equal_output
from workbench.conversion.vllm_checkpoint.directory import VllmCheckpoint
from workbench.conversion.vllm_checkpoint.tensors import StoredTensor, stored_tensor
from workbench.core.errors import BadInput
from workbench.families.speechlm.directory import TEXT_TOKENIZER, VLLM_CODEC, VLLM_CONFIG, WHOLE_TOKENIZER, config_file
from workbench.families.speechlm.model import CODEC_PREFIX, SpeechLmModel, read_speechlm
from workbench.formats.json_files import read_json_file
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions
from workbench.runtimes.pytorch.checkpoints.speechlm_weights import STREAM_TABLE, SpeechLmTensors, read_tensors
from workbench.runtimes.pytorch.checkpoints.weights import check_tensors, read_safetensors
from workbench.runtimes.pytorch.speechlm import architecture, stream_table
from workbench.runtimes.pytorch.speechlm_tower import AudioEncoder
from workbench.speech.layout import SPECIAL

ARCHITECTURE = "SpeechWorkbenchSpeechLM"
DEFAULTS = ("text_temperature", "text_topk", "audio_temperature", "audio_topk")  # of a checkpoint's config.json


def plan(directory: Path) -> VllmCheckpoint:
    """Plans the directory of a checkpoint; raises `BadInput` for a bad checkpoint."""
    model = read_speechlm(directory)
    parts = read_tensors(model.weights)
    language, settings = dict(parts.language), model.settings
    if settings["tie_word_embeddings"]:
        language = without_equal_output(language)
        settings = {**settings, "tie_word_embeddings": OUTPUT not in language}
    model, parts = replace(model, settings=settings), replace(parts, language=language)
    tensors = [*_network_tensors(model, parts), *_codec_tensors(model, parts)]
    # vLLM also counts the last id of an answer, which is never fed to the network.
    config = {**model.settings, "max_position_embeddings": model.context + 1}
    return VllmCheckpoint(
        family="speechlm",
        language=model.language,
        tensors=tensors,
        where=parts.where,
        architecture=ARCHITECTURE,
        config={"model_type": "qwen3", "dtype": _dtype(parts), **config},
        whole_config=True,
        tokenizer=model.tokenizer.language,
        preprocessor=_preprocessor(model),
        files=_files(model),
        sources=_sources(model),
    )


def _network_tensors(model: SpeechLmModel, parts: SpeechLmTensors) -> list[StoredTensor]:
    """Returns language model, stream embeddings, tower and adaptor; raises `BadInput` if they do not fit."""
    expected = _language_shapes(model, parts.where)
    if model.settings["tie_word_embeddings"]:
        del expected[OUTPUT]
    check_tensors(expected, parts.language, parts.where, described_in="its configuration")
    streams = stream_table(model, parts)
    if model.tower is not None:  # which compares the tensors with its network
        AudioEncoder(model.tower, parts.audio, model.hidden_size, torch.device("cpu"), parts.where, parts.files)
    elif parts.audio:
        raise BadInput(f"{parts.where} has tensor {next(iter(parts.audio))}, and its configuration has no audio tower")
    regions = mapped_regions(*parts.files)
    all_tensors = {**parts.language, STREAM_TABLE: streams, **parts.audio}
    return [stored_tensor(name, value, regions, parts.where) for name, value in all_tensors.items()]


def _language_shapes(model: SpeechLmModel, where: str) -> dict[str, Any]:
    from transformers import Qwen3ForCausalLM

    described_in = f"the configuration of {model.directory.name}"
    return expected_tensors(Qwen3ForCausalLM, architecture(model, where), described_in)


def _codec_tensors(model: SpeechLmModel, parts: SpeechLmTensors) -> list[StoredTensor]:
    """Returns the codec's tensors, from the checkpoint or from its own folder."""
    if model.codec is None:
        return []
    folder = model.codec.with_weights(bool(parts.codec))
    files, tensors, where = list(parts.files), dict(parts.codec), parts.where
    if folder is not None:
        files, where = sorted(folder.glob("model*.safetensors")), folder.name
        tensors = {name: value for file in files for name, value in read_safetensors(file).items()}
    regions = mapped_regions(*files)
    return [stored_tensor(f"{CODEC_PREFIX}{name}", value, regions, where) for name, value in tensors.items()]


def _dtype(parts: SpeechLmTensors) -> str:
    kinds = {str(value.dtype).removeprefix("torch.") for value in parts.language.values()}
    return kinds.pop() if len(kinds) == 1 else "float32"


def _preprocessor(model: SpeechLmModel) -> dict[str, Any]:
    if model.tower is None:
        return {}
    mel = model.tower.mel
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": mel.bins,
        "sampling_rate": 16000,
        "hop_length": mel.hop,
        "n_fft": mel.window,
        "padding_value": 0.0,
        "do_normalize": mel.normalise,
    }


def _files(model: SpeechLmModel) -> dict[str, bytes]:
    """Returns `speechlm.json`, the codec's configuration, and the checkpoint's files of settings for generation."""
    layout = model.layout
    config: dict[str, Any] = {
        "model_type": "bagpiper",
        "tokenizer": TEXT_TOKENIZER if model.tokenizer.offset else WHOLE_TOKENIZER,
        "text_config": dict(model.settings),
        "hidden_size": model.hidden_size,
        "vocab_size": layout.vocabulary,
        "text_token_offset": layout.text_first,
        "text_token_end": layout.text_end,
        "codec_base_offset": layout.codec_first,
        "codec_layer_size": layout.layer_size,
        "num_stream": layout.streams,
        **{f"{name}_token_id": getattr(layout, name) for name in SPECIAL},
    }
    if model.tower is not None:
        config |= {"audio_config": dict(model.tower.settings), "adaptor_input_dim": model.tower.width}
    files: dict[str, bytes] = {}
    if model.codec is not None:
        config["xcodec_hf_model_tag"] = VLLM_CODEC
        if model.codec.directory is not None:
            files[f"{VLLM_CODEC}/config.json"] = (model.codec.directory / "config.json").read_bytes()
    config_path = config_file(model.directory)
    stated_config = read_json_file(config_path) if config_path.is_file() else {}
    config |= {name: stated_config[name] for name in DEFAULTS if stated_config.get(name) is not None}
    files[VLLM_CONFIG] = (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
    return files | {path.name: path.read_bytes() for path in sorted(model.directory.glob("inference*.yaml"))}


def _sources(model: SpeechLmModel) -> Sequence[Path]:
    """Returns the directories of the sources, which may be outside the checkpoint's directory."""
    codec = model.codec.directory if model.codec else None
    return (model.directory, *((codec,) if codec else ()))
