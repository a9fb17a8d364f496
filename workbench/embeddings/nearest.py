"""Which rows of a table embeddings are nearest to, by the angle between them. Arrays; no models."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

BLOCK_BYTES = 64 << 20  # of the table's rows, and of the cosines, that are in memory at once
SMALL = np.float32(1e-20)  # square of a length, of which no part that counts is too small for float32
FIRST_ROWS = 256  # of the table, to begin with: what is kept of them lets most others go unsorted


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
    found = _Found(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    step = max(1, BLOCK_BYTES // (4 * max(width, len(values))))
    first, last = 0, min(total, max(count, FIRST_ROWS))
    worst = np.full(len(values), -np.inf, dtype=np.float32)  # of those kept of each token
    while first < total:
        block = _cosines(wanted, np.asarray(table[first:last], dtype=np.float32))
        # What is no better than the worst that is kept comes too late, as it is a higher row.
        tokens, columns = np.nonzero(block > worst[:, None])
        found = _best(found, _Found(tokens, first + columns, block[tokens, columns]), count)
        if last >= count:
            worst = found.cosines[count - 1 :: count]
        first, last = last, min(total, last + step)
    return found.rows.reshape(-1, count), np.clip(found.cosines.reshape(-1, count), -1, 1)


class _Found(NamedTuple):
    """Pairs of a token and a row, and their cosines."""

    tokens: np.ndarray
    rows: np.ndarray
    cosines: np.ndarray


def _best(one: _Found, other: _Found, count: int) -> _Found:
    """The best so many pairs of each token, token by token, the best first."""
    tokens, rows, cosines = (np.concatenate(both) for both in zip(one, other))
    order = np.lexsort((rows, -cosines, tokens))
    ordered = tokens[order]
    kept = order[np.arange(len(order)) - np.searchsorted(ordered, ordered) < count]
    return _Found(tokens[kept], rows[kept], cosines[kept])


def _cosines(directions: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of vectors of length 1 [tokens, width] and float32 rows [rows, width]: [tokens, rows]."""
    # All rows divided by their lengths would take ten times as long as their product with a few vectors.
    squares = np.einsum("rw,rw->r", rows, rows)
    plain = (squares > SMALL) & (squares < 1 / SMALL)
    if not plain.all():
        rows, squares = rows.copy(), np.where(plain, squares, 1)
        rows[~plain] = _directions(rows[~plain])
    cosines: np.ndarray = directions @ rows.T
    cosines /= np.sqrt(squares)
    return cosines


def _directions(values: np.ndarray) -> np.ndarray:
    """Vectors of length 1 in float32; zeros stay zeros."""
    values = np.asarray(values, dtype=np.float32)
    # Divided by the largest first, or the squares of very large or small values would not fit.
    largest = np.abs(values).max(axis=1, keepdims=True)
    values = values / np.where(largest > 0, largest, 1)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    found: np.ndarray = values / np.where(norms > 0, norms, 1)
    return found
