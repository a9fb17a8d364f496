"""FireRedASR-LLM's language model: its base weights, and the checkpoint's changes to them.

Nothing is added in advance: a weight's rows are changed when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.conversion.language_weights import read_language_weights
from workbench.families.speech_llm.fireredasr import ENCODER_WEIGHTS
from workbench.runtimes.pytorch.checkpoints.lora import check_pair, check_replacement, sort_tensors
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions, release_pages
from workbench.runtimes.pytorch.fireredasr import Checkpoint


@dataclass(frozen=True, eq=False)
class Change:
    """The change that LoRA adds to a weight: scale * B A."""

    a: Tensor  # [r, in]
    b: Tensor  # [out, r]
    scale: float


@dataclass(frozen=True, eq=False)
class ChangedLanguage:
    """The tensors of a language model as stored in the files, by transformers' names."""

    tensors: Mapping[str, Tensor]
    changes: Mapping[str, Change]  # by the name of the weight to change
    regions: list[tuple[int, int]]  # where the files are mapped, including the speech encoder's
    where: str  # the name of the tensors' source in messages


def read_changed_language(checkpoint: Checkpoint) -> ChangedLanguage:
    """Reads the weights in the language model's directory with the checkpoint's changes, or the checkpoint's own
    weights.

    Raises `BadInput` for changes to another language model.
    """
    model, checkpoint_name = checkpoint.model, checkpoint.where
    sorted_tensors = sort_tensors(checkpoint.language, checkpoint_name)
    base_name = f"the language model in {model.language.directory.name}"
    regions = [*mapped_regions(checkpoint.weights), *mapped_regions(model.directory / ENCODER_WEIGHTS)]
    tensors: dict[str, Tensor] = dict(sorted_tensors.full)
    if not sorted_tensors.complete:
        tensors, mapped_regions_of_base = read_language_weights(model.language.directory)
        regions += mapped_regions_of_base
        for name, value in sorted_tensors.full.items():
            check_replacement(name, value, tensors[name].shape if name in tensors else None, checkpoint_name, base_name)
            tensors[name] = value
    changes = {}
    for module, pair in sorted_tensors.pairs.items():
        weight = tensors.get(f"{module}.weight")
        shape = None if weight is None else weight.shape
        a, b, r = check_pair(pair, shape, model.lora_rank, checkpoint_name, base_name)
        for matrix in (a, b):
            release_pages(matrix, regions)  # the check has read them
        changes[f"{module}.weight"] = Change(a, b, model.lora_alpha / r)
    return ChangedLanguage(
        tensors, changes, regions, checkpoint_name if sorted_tensors.complete else f"{checkpoint_name} or {base_name}"
    )


def merged(weight: Tensor, change: Change, first: int, last: int) -> Tensor:
    """Returns W + scale * B A in float32, for rows `first` to `last` (exclusive) of W."""
    return torch.addmm(weight.float(), change.b[first:last].float(), change.a.float(), alpha=change.scale)
