"""Finds the rows of a table that are nearest to embeddings by the angle between them. Arrays; no models."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

BLOCK_BYTES = 64 << 20  # memory for the table's rows, and for the cosines, at one time
SMALL = np.float32(1e-20)  # smallest squared length whose relevant parts do not underflow in float32
FIRST_ROWS = 256  # size of the first block; its best cosines exclude most later rows from the sorting


class Table(Protocol):
    """Rows of floating-point numbers, in memory or read on access, such as an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (rows, width)."""
        ...

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Returns some rows as an array [rows, width]."""
        ...


def nearest(values: np.ndarray, table: Table, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k = min(count, rows) nearest rows of each embedding, and the cosines of the angles.

    The rows are int64 [tokens, k], the cosines float32 [tokens, k]. The nearest comes first; for equal cosines, the
    lower row. A vector of zeros has the cosine 0 with every other. The table is read once, block by block.

    Args:
        values: [tokens, width].
    """
    total, width = table.shape
    count = min(count, total)
    unit_vectors = directions(values)
    pairs = _Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    step = max(1, BLOCK_BYTES // (4 * max(width, len(values))))
    first, last = 0, min(total, max(count, FIRST_ROWS))
    worst = np.full(len(values), -np.inf, dtype=np.float32)  # lowest cosine among the rows found for each token
    while first < total:
        block = _cosines(unit_vectors, np.asarray(table[first:last], dtype=np.float32))
        # An equal cosine in a later block loses, because its row is higher.
        tokens, columns = np.nonzero(block > worst[:, None])
        pairs = _best(pairs, _Pairs(tokens, first + columns, block[tokens, columns]), count)
        if last >= count:
            worst = pairs.cosines[count - 1 :: count]
        first, last = last, min(total, last + step)
    return pairs.rows.reshape(-1, count), np.clip(pairs.cosines.reshape(-1, count), -1, 1)


class _Pairs(NamedTuple):
    """Pairs of a token and a row, and their cosines."""

    tokens: np.ndarray
    rows: np.ndarray
    cosines: np.ndarray


def _best(best: _Pairs, candidates: _Pairs, count: int) -> _Pairs:
    """Returns the best `count` pairs of each token, token by token, best first."""
    tokens, rows, cosines = (np.concatenate(arrays) for arrays in zip(best, candidates))
    order = np.lexsort((rows, -cosines, tokens))
    ordered = tokens[order]
    selected = order[np.arange(len(order)) - np.searchsorted(ordered, ordered) < count]
    return _Pairs(tokens[selected], rows[selected], cosines[selected])


def _cosines(unit_vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns the cosines [tokens, rows] of unit vectors [tokens, width] and float32 rows [rows, width]."""
    # To divide all rows by their lengths would take ten times as long as the product with a few vectors.
    squares = np.einsum("rw,rw->r", rows, rows)
    plain = (squares > SMALL) & (squares < 1 / SMALL)
    if not plain.all():
        rows, squares = rows.copy(), np.where(plain, squares, 1)
        rows[~plain] = directions(rows[~plain])
    cosines: np.ndarray = unit_vectors @ rows.T
    cosines /= np.sqrt(squares)
    return cosines


def directions(values: np.ndarray) -> np.ndarray:
    """Returns the vectors [n, width] scaled to length 1, float32; vectors of zeros stay zeros."""
    values = np.asarray(values, dtype=np.float32)
    # Divided by the largest value first, or the squares of very large or small values would over- or underflow.
    largest = np.abs(values).max(axis=1, keepdims=True)
    values = values / np.where(largest > 0, largest, 1)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    scaled: np.ndarray = values / np.where(norms > 0, norms, 1)
    return scaled
