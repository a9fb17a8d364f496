"""Writes tensors to a safetensors file a few rows at a time, so that a model is never in memory twice.

The format: eight bytes with the length of a JSON header, the header (dtype, shape and offsets of every tensor), then
the values, little-endian. This file knows no model.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from workbench.core.errors import BadInput
from workbench.runtimes.pytorch.checkpoints.memory_mapping import release_pages

SAFETENSORS_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}
COUNTER = ".num_batches_tracked"  # of a batch norm: the only whole number among the tensors of a network
CHUNK_VALUES = 1 << 22  # values that are checked and written at a time
ALIGNED = 8  # bytes: alignment of the values

Rows = Callable[[int, int], Tensor]
"""Returns rows from the first to the end (exclusive) of a tensor's first axis, in its dtype; called once per row, in
order.
"""


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """One tensor of a file."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    rows: Rows

    @property
    def nbytes(self) -> int:
        """The number of bytes of its values."""
        return math.prod(self.shape) * self.dtype.itemsize


def stored_tensor(name: str, tensor: Tensor, regions: Sequence[tuple[int, int]] = (), where: str = "") -> StoredTensor:
    """Returns a tensor under this name, in its own dtype.

    Args:
        regions: where its file is mapped; pages are released after they were read.
        where: the name of that file in messages.

    Raises `BadInput` for a dtype that weights cannot have.
    """
    weights = [dtype for dtype in SAFETENSORS_NAMES if dtype.is_floating_point]
    if tensor.dtype not in ([torch.int64] if name.endswith(COUNTER) else weights):
        kinds = ", ".join(str(dtype).removeprefix("torch.") for dtype in weights)
        raise BadInput(f"{where}: tensor {name} holds {tensor.dtype}; expected one of {kinds}")

    def rows(first: int, last: int) -> Tensor:
        part = tensor.detach().reshape(tensor.shape or (1,))[first:last]
        values = part.clone(memory_format=torch.contiguous_format)
        release_pages(part, list(regions))
        return values

    return StoredTensor(name, tuple(tensor.shape), tensor.dtype, rows)


def write_safetensors(
    tensors: Sequence[StoredTensor], path: Path, where: str, on_written: Callable[[StoredTensor, int], None]
) -> None:
    """Writes one file.

    Args:
        where: the name of the tensors' source in messages.
        on_written: called with the tensor and the number of bytes after each part is written.

    Raises `BadInput` for a tensor with values that are not finite.
    """
    with path.open("wb") as file:
        header = _header(tensors)
        file.write(struct.pack("<Q", len(header)) + header)
        for tensor in tensors:
            _write(tensor, file, where, on_written)
        file.flush()


def _header(tensors: Sequence[StoredTensor]) -> bytes:
    entries: dict[str, Mapping[str, object]] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in tensors:
        place = [at, at + tensor.nbytes]
        entries[tensor.name] = {
            "dtype": SAFETENSORS_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": place,
        }
        at += tensor.nbytes
    content = json.dumps(entries, separators=(",", ":")).encode()
    return content + b" " * (-len(content) % ALIGNED)


def _write(tensor: StoredTensor, file: IO[bytes], where: str, on_written: Callable[[StoredTensor, int], None]) -> None:
    count = tensor.shape[0] if tensor.shape else 1
    step = max(CHUNK_VALUES // max(math.prod(tensor.shape[1:]), 1), 1)
    for first in range(0, count, step):
        values = tensor.rows(first, min(first + step, count))
        if not values.isfinite().all():
            raise BadInput(
                f"{where}: tensor {tensor.name} holds values that are not finite (NaN or infinity); expected numbers"
            )
        file.write(values.view(torch.uint8).numpy().data)
        on_written(tensor, values.nbytes)
