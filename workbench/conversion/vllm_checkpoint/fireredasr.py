"""FireRedASR-LLM as a directory for vLLM: the language model with LoRA in its weights, plus encoder and adapter.

The checkpoint's LoRA is added to the weights, W + alpha / r * B A, a few rows at a time while they are written. A
weight that LoRA changes becomes float32, so that no part of the change is lost; every other tensor has the dtype of its
file. config.json contains the arguments of the two torch files for `families.fireredasr.read_vllm_fireredasr`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from workbench.audio.cmvn import read_cmvn_ark
from workbench.conversion.language_changes import ChangedLanguage, merged, read_changed_language
from workbench.conversion.vllm_checkpoint.directory import VllmCheckpoint
from workbench.conversion.vllm_checkpoint.language import Store, language_tensors
from workbench.conversion.vllm_checkpoint.tensors import StoredTensor, stored_tensor
from workbench.families.language.directory import AUDIO
from workbench.families.speech_llm.fireredasr import (
    CMVN,
    ENCODER_WEIGHTS,
    MAX_SECONDS,
    SERVED_ARGUMENTS,
    WEIGHTS,
    FireRedAsrModel,
)
from workbench.families.speech_llm.fireredasr_chat import chat_template
from workbench.runtimes.pytorch.checkpoints.fireredasr_package import read_package
from workbench.runtimes.pytorch.checkpoints.weights import build, check_tensors
from workbench.runtimes.pytorch.fireredasr import (
    LANGUAGE_PREFIX,
    AudioEmbeddingNetwork,
    Checkpoint,
    read_checkpoint,
)

if TYPE_CHECKING:
    from pathlib import Path

ARCHITECTURE = "SpeechWorkbenchFireRedASR"
MERGED = {"use_lora": 0, "llm_dir": "."}  # arguments that differ between this directory and the checkpoint's
LORA_ARGUMENTS = ("lora_r", "lora_alpha")


def plan(directory: Path) -> VllmCheckpoint:
    """Plans the directory of a checkpoint; raises `BadInput` for a bad checkpoint."""
    checkpoint = read_checkpoint(directory)
    model = checkpoint.model
    changed = read_changed_language(checkpoint)
    language_part, changes = language_tensors(model.language, changed.tensors, _merging(changed), changed.where)
    return VllmCheckpoint(
        family="fireredasr",
        language=model.language,
        tensors=[*_encoder_tensors(checkpoint, changed.regions), *language_part],
        where=changed.where,
        architecture=ARCHITECTURE,
        config={**changes, **_config(model)},
        section=_section(model),
        special_tokens=(AUDIO,),
        preprocessor=_preprocessor(model),
        chat_template=chat_template(model),
        files={CMVN: model.cmvn_file.read_bytes()},
        sources=(model.language.directory,),
    )


def _encoder_tensors(checkpoint: Checkpoint, regions: list[tuple[int, int]]) -> list[StoredTensor]:
    """Returns encoder and adapter by the checkpoint's names."""
    model, where = checkpoint.model, checkpoint.where
    network = build(AudioEmbeddingNetwork, model.encoder, model.language.hidden_size, model.downsample_rate)
    expected = network.state_dict()
    check_tensors(expected, checkpoint.audio, where, described_in=f"the section args of {ENCODER_WEIGHTS}")
    return [stored_tensor(name, checkpoint.audio[name], regions, where) for name in expected]


def _merging(changed: ChangedLanguage) -> Store:
    """Returns a function that stores a tensor of the language model with the checkpoint's change added."""

    def store(name: str, tensor: Tensor) -> StoredTensor:
        unchanged = stored_tensor(f"{LANGUAGE_PREFIX}{name}", tensor, changed.regions, changed.where)
        change = changed.changes.get(name)
        if change is None:
            return unchanged

        def rows(first: int, last: int) -> Tensor:
            return merged(unchanged.rows(first, last), change, first, last)

        return StoredTensor(unchanged.name, unchanged.shape, torch.float32, rows)

    return store


def _config(model: FireRedAsrModel) -> dict[str, Any]:
    """Returns the entries that vLLM's own class reads, besides the language model's; it accepts no other keys."""
    encoder = model.encoder
    return {
        "audio_encoder_conf": {
            "idim": encoder.idim,
            "n_layers_enc": encoder.n_layers,
            "n_head": encoder.n_head,
            "d_model": encoder.d_model,
            "kernel_size": encoder.kernel_size,
            "pe_maxlen": encoder.pe_maxlen,
        },
        "encoder_downsample_rate": model.downsample_rate,
    }


def _section(model: FireRedAsrModel) -> dict[str, Any]:
    """Returns the plain values among the arguments of both torch files."""
    arguments, encoder_arguments = (
        read_package(model.directory / name).plain_arguments for name in (WEIGHTS, ENCODER_WEIGHTS)
    )
    section = {name: value for name, value in arguments.items() if name not in LORA_ARGUMENTS}
    return dict(zip(SERVED_ARGUMENTS, ({**section, **MERGED}, encoder_arguments), strict=True))


def _preprocessor(model: FireRedAsrModel) -> dict[str, Any]:
    """Returns the entries that vLLM's own class reads, in its spelling; this project's class reads cmvn.ark instead."""
    front, cmvn = model.frontend, read_cmvn_ark(model.cmvn_file)
    return {
        "feature_extractor_type": "FireRedASR2FeatureExtractor",
        "processor_class": "FireRedASR2Processor",
        "feature_size": front.n_mels,
        "sampling_rate": front.fs,
        "hop_length": round(front.fs * front.frame_shift / 1000),
        "chunk_length": round(MAX_SECONDS),
        "padding_value": 0.0,
        "return_attention_mask": False,
        "dim": front.n_mels,
        "means": (-cmvn.shift).tolist(),
        "inverse_std_variences": cmvn.scale.tolist(),
        "num_mel_bins": front.n_mels,
        "frame_length": front.frame_length,
        "frame_shift": front.frame_shift,
        "dither": 0.0,
        "max_length": round(MAX_SECONDS * 1000 / front.frame_shift),
        "downsample_rate": model.downsample_rate,
        "left_context": 3,
        "right_context": 3,
    }
