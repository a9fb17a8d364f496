"""Attention over many frames in numpy, whose matrix products are faster than ggml's fused attention.

The work is cut into tasks by the number of frames alone, so the result does not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

LEAST = 384  # frames and keys; with fewer, ggml's fused attention is as fast or faster
ROWS = 384  # most queries of a task, so that its scores stay in the processor's cache


def tasks(frames: int, heads: int) -> list[tuple[int, slice]]:
    """Returns (head, queries) of each task."""
    return [(head, rows) for head in range(heads) for rows in _blocks(frames)]


def _blocks(frames: int) -> Iterator[slice]:
    count = -(-frames // ROWS)
    for n in range(count):
        yield slice(frames * n // count, frames * (n + 1) // count)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, result: np.ndarray, heads: int, head: int, rows: slice) -> None:
    """Computes scaled dot-product attention of one task: some queries of one head.

    Args:
        q: queries [T, D].
        k: keys [S, D].
        v: values [S, D].
        result: the place for the context [T, D].
    """
    width = q.shape[1] // heads
    part = slice(head * width, (head + 1) * width)
    scores = (q[rows, part] * np.float32(1.0 / math.sqrt(width))) @ k[:, part].T
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    context = result[rows, part]
    np.matmul(scores, v[:, part], out=context)
    context /= scores.sum(axis=1, keepdims=True)
