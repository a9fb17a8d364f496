"""What a conversion expects of a language model of transformers: its tensors, and whether it has an output matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import BadInput, message_of

EMBEDDINGS, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
COMPARED = 1024  # rows of two tables that are compared at a time

SameRows = Callable[[Tensor, Tensor, int, int], bool]
"""Compares rows `first` to `end` of the output matrix and of the embeddings."""


def expected_tensors(network_class: Any, config: Any, described_in: str) -> dict[str, Tensor]:
    """Returns the tensors of a network by name, without memory for their values.

    Args:
        described_in: the name of the configuration in messages.

    Raises `BadInput` if the configuration describes no network.
    """
    try:
        with torch.device("meta"):
            return dict(network_class(config).state_dict())
    except Exception as error:  # a network raises many kinds for values that it cannot compute with
        raise BadInput(f"{described_in} describes no network: {message_of(error)}") from error


def _same_values(output: Tensor, embeddings: Tensor, first: int, end: int) -> bool:
    return torch.equal(output[first:end], embeddings[first:end].to(output.dtype))


def without_equal_output(tensors: Mapping[str, Tensor], same_rows: SameRows = _same_values) -> dict[str, Tensor]:
    """Returns the tensors of a model whose configuration ties its output matrix to the embeddings.

    They have the output matrix only if it differs from the embeddings. If a file has the output matrix alone, it
    becomes the embeddings.
    """
    remaining = dict(tensors)
    if EMBEDDINGS not in remaining and OUTPUT in remaining:
        remaining[EMBEDDINGS] = remaining.pop(OUTPUT)
    if OUTPUT in remaining and _are_equal(remaining[OUTPUT], remaining[EMBEDDINGS], same_rows):
        del remaining[OUTPUT]
    return remaining


def _are_equal(output: Tensor, embeddings: Tensor, same_rows: SameRows) -> bool:
    if output.shape != embeddings.shape or output.data_ptr() == embeddings.data_ptr():
        return output.shape == embeddings.shape
    return all(same_rows(output, embeddings, first, first + COMPARED) for first in range(0, len(output), COMPARED))
