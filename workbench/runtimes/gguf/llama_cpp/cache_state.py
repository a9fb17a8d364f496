"""Reads the keys and values of one sequence from the state that llama.cpp writes of its cache.

The state is: a word for the format, the sequence, the number of streams (1), the number of cells; for each cell its
position and its sequences; the order of the values and the number of layers; the keys of each layer; the values of each
layer, position by position or channel by channel. A state that is not exactly of that form is refused. This file loads
no library.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.core.errors import Unavailable
from workbench.formats.gguf_types import TENSOR_TYPES, dequantised
from workbench.runtimes.gguf.files.language_file import Dimensions


@dataclass(frozen=True, eq=False)
class CachedLayer:
    """The keys and values of one layer in the cache: float32 [positions, heads of keys, head width]."""

    key: np.ndarray
    value: np.ndarray


def read_cache_state(state: bytes, sizes: Dimensions) -> list[CachedLayer]:
    """Returns the cache of each layer, its rows in the order of their positions.

    Raises `Unavailable` if the state has another form; other versions of llama.cpp may write one.
    """
    reader = _Reader(state)
    try:
        layers = _layers(reader, sizes)
    except (struct.error, ValueError, KeyError) as error:
        raise _unknown_form(str(error)) from error
    if reader.place != len(state):
        raise _unknown_form(f"{len(state) - reader.place} bytes are left over")
    return layers


def _layers(reader: _Reader, sizes: Dimensions) -> list[CachedLayer]:
    _, _, streams, cells = reader.take("<4I")
    if streams != 1:
        raise ValueError(f"it has {streams} streams")
    positions = np.empty(cells, dtype=np.int64)
    for cell in range(cells):
        positions[cell], members = reader.take("<iI")
        reader.take(f"<{members}i")
    by_channel, layers = reader.take("<2I")
    if layers != sizes.layers:
        raise ValueError(f"it has {layers} layers")
    order, shape = np.argsort(positions, kind="stable"), (cells, sizes.key_heads, sizes.head_width)
    width = sizes.key_heads * sizes.head_width
    keys = [_rows(reader, cells)[order].reshape(shape) for _ in range(layers)]
    read_values = _channels if by_channel else _rows
    values = [read_values(reader, cells)[order] for _ in range(layers)]
    if any(each.shape[1] != width for each in values):
        raise ValueError(f"the values are {values[0].shape[1]} wide")
    return [CachedLayer(key, value.reshape(shape)) for key, value in zip(keys, values, strict=True)]


def _rows(reader: _Reader, cells: int) -> np.ndarray:
    kind, size = reader.take("<iQ")
    return dequantised(reader.rows(cells, size), TENSOR_TYPES[kind].name, "the cache")


def _channels(reader: _Reader, cells: int) -> np.ndarray:
    kind, size, width = reader.take("<i2I")
    if not cells:
        return np.empty((0, width), np.float32)
    return dequantised(reader.rows(width, size * cells), TENSOR_TYPES[kind].name, "the cache").T


class _Reader:
    """Reads a state from its beginning to its end."""

    def __init__(self, state: bytes):
        self._state = state
        self.place = 0

    def take(self, layout: str) -> Any:
        """Returns the next numbers."""
        numbers = struct.unpack_from(layout, self._state, self.place)
        self.place += struct.calcsize(layout)
        return numbers

    def rows(self, count: int, size: int) -> np.ndarray:
        """Returns the next rows of `size` bytes, uint8 [count, size]."""
        rows = np.frombuffer(self._state, np.uint8, count * size, self.place).reshape(count, size)
        self.place += count * size
        return rows


def _unknown_form(reason: str) -> Unavailable:
    return Unavailable(
        f"the cache cannot be shown: llama.cpp writes its state in a form that is not known here ({reason})"
    )
