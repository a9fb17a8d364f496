"""The tensors of a SpeechLM checkpoint of either form, sorted by part; every tensor must belong to a part.

This file builds no network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from torch import Tensor

from workbench.core.errors import BadInput
from workbench.core.phrases import name_in_folder
from workbench.families.speechlm.model import CODEC_PREFIX, TOWER_PREFIX, UNUSED_TENSORS
from workbench.runtimes.pytorch.checkpoints.weights import read_safetensors, read_state_dict

LANGUAGE = ("model.*", "lm_head.weight")
STREAM_TABLE = "stream_emb.weight"
ADAPTOR_PREFIX = "adaptor.continuous_audio."


@dataclass(frozen=True)
class SpeechLmTensors:
    """A checkpoint's tensors, mapped from its files and not read yet."""

    files: tuple[Path, ...]
    where: str  # the name of the files in messages
    language: dict[str, Tensor] = field(default_factory=dict)  # by transformers' names
    streams: dict[str, Tensor] = field(default_factory=dict)  # `stream_emb`
    audio: dict[str, Tensor] = field(default_factory=dict)  # audio tower and adaptor, by the checkpoint's names
    codec: dict[str, Tensor] = field(default_factory=dict)  # by transformers' names; empty if it is elsewhere


def read_tensors(files: Sequence[Path]) -> SpeechLmTensors:
    """Returns the tensors of safetensors files, or of ESPnet's or DeepSpeed's file.

    Raises `BadInput` if a file is damaged, or a tensor belongs to no part.
    """
    where = name_in_folder(files[0]) if len(files) == 1 else files[0].parent.name
    tensors_of_all: dict[str, Tensor] = {}
    for file in files:
        tensors = read_safetensors(file) if file.suffix == ".safetensors" else read_state_dict(file)
        duplicate = next((name for name in tensors if name in tensors_of_all), None)
        if duplicate is not None:
            raise BadInput(f"{where} has tensor {duplicate} in {file.name} and in another file; expected it once")
        tensors_of_all |= tensors
    return _sort(tensors_of_all, SpeechLmTensors(tuple(files), where))


def _sort(tensors: Mapping[str, Tensor], parts: SpeechLmTensors) -> SpeechLmTensors:
    unknown = []
    for name, value in tensors.items():
        if any(fnmatchcase(name, glob) for glob in LANGUAGE):
            parts.language[name] = value
        elif name == STREAM_TABLE:
            parts.streams[name] = value
        elif name.startswith((TOWER_PREFIX, ADAPTOR_PREFIX)):
            parts.audio[name] = value
        elif name.startswith(CODEC_PREFIX):
            parts.codec[name.removeprefix(CODEC_PREFIX)] = value
        elif name not in UNUSED_TENSORS:
            unknown.append(name)
    if unknown:
        more_note = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise BadInput(f"{parts.where} has tensor {unknown[0]}{more_note}, which belongs to no part of a SpeechLM")
    return parts
