"""FireRedASR-LLM as one GGUF file: encoder, adapter and language half, the checkpoint's LoRA added to its weights.

The sums W + alpha / r * B A are made a few rows at a time, as they are written. FunASR has no layout for this family.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.audio.cmvn import read_cmvn_ark
from workbench.conversion.files import LANGUAGE_FILES, small_files, travelling
from workbench.conversion.language import plan_language
from workbench.conversion.language_weights import read_language_weights
from workbench.conversion.plan import Plan, Rows, Value
from workbench.conversion.tensors import plan_cmvn, plan_tensors, tensor_rows
from workbench.errors import BadInput
from workbench.families.fireredasr import CMVN, ENCODER_WEIGHTS, WEIGHTS
from workbench.runtimes.pytorch.fireredasr import Checkpoint, HearingNetwork, read_checkpoint
from workbench.runtimes.pytorch.fireredasr_package import read_package
from workbench.runtimes.pytorch.lora import Pair, check_pair, check_replacement, sort_tensors
from workbench.runtimes.pytorch.mapped import give_back, mapped_regions
from workbench.runtimes.pytorch.weights import build, check_tensors

ARCHITECTURE = "fireredasr-llm"


def plans(directory: Path, layout: str) -> list[Plan]:
    """The one file of a checkpoint directory; raises `BadInput` for a bad checkpoint."""
    if layout == "funasr":
        raise BadInput(f"FunASR has no layout for {directory.name}, a FireRedASR-LLM; leave --layout out")
    checkpoint = read_checkpoint(directory)
    model = checkpoint.model
    network = build(HearingNetwork, model.encoder, model.language.hidden_size, model.downsample_rate)
    described = f"args of {ENCODER_WEIGHTS}"
    check_tensors(network.state_dict(), checkpoint.hearing, checkpoint.where, described_in=described)
    ear = plan_tensors(checkpoint.hearing, checkpoint.weights)
    tensors, rows = _language(checkpoint)
    half = plan_language(model.language, model.tokenizer, tensors, rows, checkpoint.where)
    language = model.language.directory
    files = {CMVN: model.cmvn_file, **small_files(language, LANGUAGE_FILES, language.name)}
    values: dict[str, Value] = {
        "workbench.arguments": _arguments(model.directory),
        "workbench.language.architecture": half.architecture,
        **half.values,
        **travelling("fireredasr", files),
    }
    cmvn = plan_cmvn(read_cmvn_ark(model.cmvn_file))
    return [Plan(ARCHITECTURE, values, [*cmvn, *ear, *half.tensors], notes=half.notes, sources=(language,))]


def _language(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], Any]:
    """The tensors of the language half as the files have them, and what makes the rows of the changed ones."""
    model, where = checkpoint.model, checkpoint.where
    found = sort_tensors(checkpoint.language, where)
    base = f"the language model in {model.language.directory.name}"
    regions = [*mapped_regions(checkpoint.weights), *mapped_regions(model.directory / ENCODER_WEIGHTS)]
    tensors: dict[str, Tensor] = dict(found.full)
    if not found.complete:
        tensors, mapped = read_language_weights(model.language.directory)
        regions += mapped
        for name, value in found.full.items():
            check_replacement(name, value, tensors[name].shape if name in tensors else None, where, base)
            tensors[name] = value
    changes = {}
    for module, pair in found.pairs.items():
        weight = tensors.get(f"{module}.weight")
        shape = None if weight is None else weight.shape
        a, b, r = check_pair(module, pair, shape, model.lora_rank, where, base)
        for half in (a, b):
            give_back(half, regions)  # they were looked at
        changes[f"{module}.weight"] = (Pair(a, b), model.lora_alpha / r)

    def rows(name: str, tensor: Tensor) -> Rows:
        plain = tensor_rows(tensor, regions)
        return merged_rows(plain, *changes[name]) if name in changes else plain

    return tensors, rows


def merged_rows(plain: Rows, pair: Pair, scale: float) -> Rows:
    """The rows of W + scale * B A, of the rows of W."""

    def rows(first: int, last: int) -> np.ndarray:
        assert pair.a is not None and pair.b is not None
        weight = torch.from_numpy(plain(first, last))
        merged: np.ndarray = torch.addmm(weight, pair.b[first:last].float(), pair.a.float(), alpha=scale).numpy()
        return merged

    return rows


def _arguments(directory: Path) -> str:
    """The plain values among the args of both torch files, as JSON."""
    packages = {"model": read_package(directory / WEIGHTS), "encoder": read_package(directory / ENCODER_WEIGHTS)}
    return json.dumps({half: _plain(package.arguments) for half, package in packages.items()}, ensure_ascii=False)


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in arguments.items()
        if value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))
    }
