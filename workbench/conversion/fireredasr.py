"""FireRedASR-LLM as one GGUF file: encoder, adapter and language model, with the checkpoint's LoRA added to its
weights.

The sums W + alpha / r * B A are computed a few rows at a time while they are written. FunASR has no layout for this
family.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from workbench.audio.cmvn import read_cmvn_ark
from workbench.conversion.files import LANGUAGE_FILES, embedded_files, small_files
from workbench.conversion.language import plan_language
from workbench.conversion.language_changes import Change, merged, read_changed_language
from workbench.conversion.plan import Plan, Rows, Value
from workbench.conversion.tensors import plan_cmvn, plan_tensors, tensor_rows
from workbench.core.errors import BadInput
from workbench.families.speech_llm.fireredasr import CMVN, ENCODER_WEIGHTS, WEIGHTS
from workbench.runtimes.pytorch.checkpoints.fireredasr_package import read_package
from workbench.runtimes.pytorch.checkpoints.weights import build, check_tensors
from workbench.runtimes.pytorch.fireredasr import AudioEmbeddingNetwork, read_checkpoint

ARCHITECTURE = "fireredasr-llm"


def plans(directory: Path, layout: str) -> list[Plan]:
    """Returns the plan of a checkpoint directory; raises `BadInput` for a bad checkpoint."""
    if layout == "funasr":
        raise BadInput(f"FunASR has no layout for {directory.name}, a FireRedASR-LLM; leave --layout out")
    checkpoint = read_checkpoint(directory)
    model = checkpoint.model
    network = build(AudioEmbeddingNetwork, model.encoder, model.language.hidden_size, model.downsample_rate)
    section = f"the section args of {ENCODER_WEIGHTS}"
    check_tensors(network.state_dict(), checkpoint.audio, checkpoint.where, described_in=section)
    encoder = plan_tensors(checkpoint.audio, checkpoint.weights)
    changed = read_changed_language(checkpoint)

    def rows(name: str, tensor: Tensor) -> Rows:
        unchanged_rows = tensor_rows(tensor, changed.regions)
        return merged_rows(unchanged_rows, changed.changes[name]) if name in changed.changes else unchanged_rows

    language_part = plan_language(model.language, model.tokenizer, changed.tensors, rows, checkpoint.where)
    language = model.language.directory
    files = {CMVN: model.cmvn_file, **small_files(language, LANGUAGE_FILES, language.name)}
    values: dict[str, Value] = {
        "workbench.arguments": _arguments(model.directory),
        "workbench.language.architecture": language_part.architecture,
        **language_part.values,
        **embedded_files("fireredasr", files),
    }
    cmvn = plan_cmvn(read_cmvn_ark(model.cmvn_file))
    return [
        Plan(
            ARCHITECTURE,
            values,
            [*cmvn, *encoder, *language_part.tensors],
            notes=language_part.notes,
            sources=(language,),
        )
    ]


def merged_rows(unchanged_rows: Rows, change: Change) -> Rows:
    """Returns the rows of a changed weight, computed from the rows of the weight."""

    def rows(first: int, last: int) -> np.ndarray:
        merged_values: np.ndarray = merged(torch.from_numpy(unchanged_rows(first, last)), change, first, last).numpy()
        return merged_values

    return rows


def _arguments(directory: Path) -> str:
    """Returns the plain values among the args of both torch files, as JSON."""
    packages = {"model": read_package(directory / WEIGHTS), "encoder": read_package(directory / ENCODER_WEIGHTS)}
    arguments = {part: package.plain_arguments for part, package in packages.items()}
    return json.dumps(arguments, ensure_ascii=False)
