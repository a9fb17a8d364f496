"""Turns torch tensors of a checkpoint into tensors of a plan: a few rows at a time, in float32, and not held in memory.

Several families share this code: it knows which tensors have a special form in GGUF, and CMVN vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from workbench.audio.cmvn import Cmvn
from workbench.conversion.plan import PlannedTensor, Rows, array_rows
from workbench.formats.quantization import Kind
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions, release_pages

# Tensors that are f32 in every file, by a part of their name. Vectors are f32 too.
EXACT_NAME_PARTS = ("norm", "bias", "fsmn_block", "cif_output", "embed.weight")


def tensor_rows(tensor: Tensor, regions: list[tuple[int, int]]) -> Rows:
    """Returns the rows of a tensor in float32; `regions` is where its file is mapped, so that its pages can be
    released.
    """

    def rows(first: int, last: int) -> np.ndarray:
        part = tensor[first:last]
        values: np.ndarray = part.detach().to(torch.float32, copy=True).contiguous().numpy()
        release_pages(part, regions)
        return values

    return rows


def kernel_rows(tensor: Tensor) -> Rows:
    """Returns the rows of a small depthwise kernel [D, 1, K] or [D, 1, K, 1] as [K, D]: one row per tap."""

    def rows(first: int, last: int) -> np.ndarray:
        values: np.ndarray = tensor.detach().to(torch.float32).flatten(1).T[first:last].contiguous().numpy()
        return values

    return rows


def is_kernel(name: str) -> bool:
    """Returns whether a tensor is a depthwise kernel over time, which GGUF files store with one row per tap."""
    return name.endswith(("fsmn_block.weight", "fsmn_block.conv_left.weight", "conv.depthwise_conv.weight"))


def plan_tensors(
    tensors: Mapping[str, Tensor], mapped_from: Path | None, tables: Sequence[str] = ()
) -> list[PlannedTensor]:
    """Plans the tensors of a speech network under their own names.

    Args:
        tensors: by the names of the checkpoint.
        mapped_from: the file that they are mapped from.
        tables: names of token embeddings and output matrices.
    """
    regions = mapped_regions(mapped_from) if mapped_from else []
    planned = []
    for name, tensor in tensors.items():
        shape = tuple(tensor.shape)
        if is_kernel(name):
            planned.append(PlannedTensor(name, (shape[2], shape[0]), Kind.EXACT, kernel_rows(tensor)))
            continue
        if tensor.ndim == 3 and shape[2] == 1 and name.endswith((".pointwise_conv1.weight", ".pointwise_conv2.weight")):
            tensor, shape = tensor.squeeze(2), shape[:2]  # a linear layer, stored as a convolution
        kind = Kind.TABLE if name in tables else Kind.MATRIX
        if any(part in name for part in EXACT_NAME_PARTS) or len(shape) != 2:
            kind = Kind.EXACT
        planned.append(PlannedTensor(name, shape, kind, tensor_rows(tensor, regions)))
    return planned


def plan_cmvn(cmvn: Cmvn | None) -> list[PlannedTensor]:
    """Plans the two vectors of y = (x + shift) * scale; none without CMVN."""
    if cmvn is None:
        return []
    vectors = {"cmvn.shift": cmvn.shift, "cmvn.scale": cmvn.scale}
    return [PlannedTensor(name, v.shape, Kind.EXACT, array_rows(v)) for name, v in vectors.items()]
