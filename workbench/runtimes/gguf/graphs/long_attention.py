"""Attention over many frames in numpy, whose matrix products are faster than ggml's fused attention.

The work is cut into tasks by the number of frames alone, so the result does not depend on the number of threads.
"""

from __future__ import annotations

import math

import numpy as np

from workbench.runtimes.gguf.graphs.matrix_products import blocks

MIN_FRAMES = 384  # frames and keys; with fewer, ggml's fused attention is as fast or faster
MAX_QUERIES = 384  # most queries of a task, so that its scores stay in the processor's cache


def tasks(frames: int, heads: int) -> list[tuple[int, slice]]:
    """Returns (head, queries) of each task."""
    return [(head, rows) for head in range(heads) for rows in blocks(frames, MAX_QUERIES)]


def score_buffer(frames: int, keys: int) -> np.ndarray:
    """Returns the memory in which a thread computes the scores of its tasks: [queries, S].

    The tasks share it, because the system clears new memory for each array of this size.
    """
    return np.empty((min(frames, MAX_QUERIES), keys), np.float32)


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    result: np.ndarray,
    heads: int,
    head: int,
    rows: slice,
    buffer: np.ndarray,
) -> None:
    """Computes scaled dot-product attention of one task: some queries of one head.

    Args:
        q: queries [T, D].
        k: keys [S, D].
        v: values [S, D].
        result: the place for the context [T, D].
        buffer: see `score_buffer`.
    """
    width = q.shape[1] // heads
    part = slice(head * width, (head + 1) * width)
    queries = q[rows, part] * np.float32(1.0 / math.sqrt(width))
    scores = np.matmul(queries, k[:, part].T, out=buffer[: len(queries)])
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    context = np.matmul(scores, v[:, part], out=result[rows, part])
    # A product with ones is a faster sum than numpy's over rows.
    context /= (scores @ np.ones(len(k), np.float32))[:, None]
