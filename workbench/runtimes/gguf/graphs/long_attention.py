"""Attention over many frames in numpy, whose matrix products are faster than ggml's fused attention.

The work is cut into tasks by the number of frames alone, so the result does not depend on the number of threads.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import as_strided

from workbench.runtimes.gguf.graphs.matrix_products import blocks

MIN_FRAMES = 384  # frames and keys; with fewer, ggml's fused attention is as fast or faster
MAX_QUERIES = 384  # most queries of a task, so that its scores stay in the processor's cache
RELATIVE_QUERIES = 128  # the same with relative positions; a task of n queries and S keys meets n + S - 1 distances


def tasks(frames: int, heads: int, queries: int = MAX_QUERIES) -> list[tuple[int, slice]]:
    """Returns (head, queries) of each task."""
    return [(head, rows) for head in range(heads) for rows in blocks(frames, queries)]


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
    part = _columns(q, heads, head)
    scores = np.matmul(q[rows, part] * _scale(part), k[:, part].T, out=buffer[: rows.stop - rows.start])
    _weigh(scores, v[:, part], result[rows, part])


def attend_relatively(
    content: np.ndarray,
    place: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    positions: np.ndarray,
    result: np.ndarray,
    heads: int,
    head: int,
    rows: slice,
    buffer: np.ndarray,
) -> None:
    """Computes attention with relative positions (Dai et al., "Transformer-XL", ACL 2019) of one task.

    Args:
        content: queries [T, D] that meet the keys.
        place: queries [T, D] that meet the positions.
        k: keys [S, D], S at most T.
        v: values [S, D].
        positions: [at least 2T - 1, D]: of the distances T - 1, T - 2, ...
        result: the place for the context [T, D].
        buffer: see `score_buffer`.
    """
    part, count, keys = _columns(content, heads, head), rows.stop - rows.start, len(k)
    scale = _scale(part)
    scores = np.matmul(content[rows, part] * scale, k[:, part].T, out=buffer[:count])
    first = len(content) - rows.stop  # the position of key 0 for the last query; for the query before it, one further
    by_distance = (place[rows, part] * scale) @ positions[first : first + count + keys - 1, part].T
    row, step = by_distance.strides
    scores += as_strided(by_distance[0, count - 1 :], (count, keys), (row - step, step), writeable=False)
    _weigh(scores, v[:, part], result[rows, part])


def _columns(x: np.ndarray, heads: int, head: int) -> slice:
    width = x.shape[1] // heads
    return slice(head * width, (head + 1) * width)


def _scale(part: slice) -> np.float32:
    return np.float32(1.0 / math.sqrt(part.stop - part.start))


def _weigh(scores: np.ndarray, values: np.ndarray, result: np.ndarray) -> None:
    """Turns scores [queries, S] into weights, in place, and computes the context from the values [S, width]."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    np.matmul(scores, values, out=result)
    # A product with ones is a faster sum than numpy's over rows.
    result /= (scores @ np.ones(len(values), np.float32))[:, None]
