"""Which rows of a table embeddings are nearest to, by the angle between them. Arrays; no models."""

from __future__ import annotations

from typing import Protocol

import numpy as np

BLOCK_BYTES = 64 << 20  # of the table's rows, and of the cosines, that are in memory at once


class Table(Protocol):
    """Rows of floating-point numbers, all or read as they are asked for: an array will do."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, width)."""
        ...

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Some rows."""
        ...


def nearest(values: np.ndarray, table: Table, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows int64 [tokens, k], cosines float32 [tokens, k]) of the k = min(count, rows) nearest rows of each embedding.

    The nearest comes first, of equally near ones the lower row. A vector of zeros has the cosine 0 with every other.
    The table is read once, block by block.

    Args:
        values: [tokens, width].
    """
    total, width = table.shape
    count = min(count, total)
    wanted = _directions(values)
    rows = np.empty((len(values), 0), dtype=np.int64)
    cosines = np.empty((len(values), 0), dtype=np.float32)
    step = max(1, BLOCK_BYTES // (4 * max(width, len(values))))
    for first in range(0, total, step):
        block = wanted @ _directions(table[first : min(first + step, total)]).T
        rows = np.concatenate([rows, np.broadcast_to(np.arange(first, first + block.shape[1]), block.shape)], axis=1)
        cosines = np.concatenate([cosines, block], axis=1)
        kept = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
        rows, cosines = np.take_along_axis(rows, kept, axis=1), np.take_along_axis(cosines, kept, axis=1)
    return rows, np.clip(cosines, -1, 1)


def _directions(values: np.ndarray) -> np.ndarray:
    """Vectors of length 1 in float32; zeros stay zeros."""
    values = np.asarray(values, dtype=np.float32)
    # Divided by the largest first, or the squares of very large or small values would not fit.
    largest = np.abs(values).max(axis=1, keepdims=True)
    values = values / np.where(largest > 0, largest, 1)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    found: np.ndarray = values / np.where(norms > 0, norms, 1)
    return found
