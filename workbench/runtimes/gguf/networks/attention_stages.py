"""The stages inside an attention: queries, keys, values, weights, context.

Our graphs compute attention with ggml's fused operation, which never holds the attention weights. If a trace wants
them, they are computed separately from the same queries and keys, in blocks of queries. So a wanted stage changes no
other value. Only a trace that substitutes queries, keys, values or weights continues with these instead. This file
knows no family. Axes: T queries, S keys, D width.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.weights import Tensor
from workbench.trace.inside import check_weights

BLOCK_BYTES = 8 << 20  # of the weights that are computed at once


@dataclass(frozen=True)
class Projected:
    """Queries [T, D], keys and values [S, D] of an attention."""

    query: Tensor
    key: Tensor
    value: Tensor
    heads: int


def show_fused(g: Graph, fused: Tensor, heads: int, prefix: str) -> Projected | None:
    """Shows the stages `prefix.query`, `prefix.key` and `prefix.value` if they are wanted.

    They are the columns of fused [T, 3 * D].

    Returns the projections if the pass continues with substituted ones, else None.
    """
    size, parts = fused.shape[1] // 3, []
    shape = (fused.shape[0], heads, size // heads)
    for number, name in enumerate(("query", "key", "value")):
        stage = f"{prefix}.{name}"
        if g.taps.wanted(stage):
            g.show(stage, _columns(g, fused, number), shape)
        parts.append(g.taps.given(stage, shape))
    if all(part is None for part in parts):
        return None
    query, key, value = (
        _columns(g, fused, number) if part is None else g.input(part.reshape(shape[0], size))
        for number, part in enumerate(parts)
    )
    return Projected(query, key, value, heads)


def show_projected(g: Graph, query: Tensor, key: Tensor, value: Tensor, heads: int, prefix: str) -> Projected:
    """Shows the stages `prefix.query`, `prefix.key` and `prefix.value`; returns the projections to continue with."""

    def tap_heads(name: str, x: Tensor) -> Tensor:
        frames, width = x.shape
        return g.tap(f"{prefix}.{name}", x, (frames, heads, width // heads))

    return Projected(tap_heads("query", query), tap_heads("key", key), tap_heads("value", value), heads)


def self_attention(
    g: Graph, fused: Tensor, projected: Projected | None, heads: int, prefix: str, bounds: Sequence[int] = ()
) -> Tensor:
    """Returns `Graph.self_attention` of fused [T, 3 * D], [T, D].

    Shows the stages `prefix.weights` and `prefix.context`.

    Args:
        projected: from `show_fused`.
        bounds: the first rows of the windows, and the end; attention stays inside a window. One window if empty.
    """
    windows = _windows(fused, bounds)
    if g.taps.wanted(f"{prefix}.weights"):
        query, key, value = (_columns(g, fused, number) for number in range(3))
        _show_weights(g, projected or Projected(query, key, value, heads), windows, f"{prefix}.weights")
    contexts = []
    for window in windows:
        if projected is None:
            contexts.append(g.self_attention(_part(g, fused, window), heads))
        else:
            query, key, value = (_part(g, x, window) for x in (projected.query, projected.key, projected.value))
            contexts.append(g.attention(query, key, value, heads))
    return g.tap(f"{prefix}.context", concatenate_all(g, contexts))


def by_window(g: Graph, x: Tensor, bounds: Sequence[int], compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns what `compute` gives for the rows of each window of x, one behind the other.

    Args:
        bounds: as in `self_attention`.
    """
    return concatenate_all(g, [compute(_part(g, x, window)) for window in _windows(x, bounds)])


def _windows(x: Tensor, bounds: Sequence[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(bounds)) or [(0, x.shape[0])]


def attention(g: Graph, projected: Projected, prefix: str) -> Tensor:
    """Returns `Graph.attention` of the projections, [T, D]; shows the stages `prefix.weights` and `prefix.context`."""
    if g.taps.wanted(f"{prefix}.weights"):
        _show_weights(g, projected, [(0, projected.query.shape[0])], f"{prefix}.weights")
    return g.tap(f"{prefix}.context", g.attention(projected.query, projected.key, projected.value, projected.heads))


def attention_weights(g: Graph, query: Tensor, key: Tensor, heads: int) -> Tensor:
    """Returns the softmax of the scores, [heads, T, S], of queries [T, D] and keys [S, D]."""
    return _weights(g, g.split(query, heads), g.split(key, heads))


def _weights(g: Graph, query: Tensor, key: Tensor) -> Tensor:
    """Returns the softmax of the scores of queries and keys that are split into heads."""
    return g.softmax(g.matmul(key, query), None, query.shape[2] ** -0.5)


def concatenate_all(g: Graph, parts: Sequence[Tensor]) -> Tensor:
    """Returns the rows of all parts, in order. Pairs are joined first, so that rows are copied a few times only."""
    while len(parts) > 1:
        pairs = [parts[n : n + 2] for n in range(0, len(parts), 2)]
        parts = [g.concatenate(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def _columns(g: Graph, fused: Tensor, number: int) -> Tensor:
    size = fused.shape[1] // 3
    return g.columns(fused, number * size, (number + 1) * size)


def _part(g: Graph, x: Tensor, window: tuple[int, int]) -> Tensor:
    return x if window == (0, x.shape[0]) else g.rows(x, *window)


def _show_weights(g: Graph, projected: Projected, windows: Sequence[tuple[int, int]], stage: str) -> None:
    """Shows the softmax of the scores, [heads, T, S], in blocks of queries.

    A single window has all keys. With several windows, each has the keys of its own rows, and weights of other keys
    stay 0.
    """
    shape = (projected.heads, projected.query.shape[0], projected.key.shape[0])
    check_weights(stage, *shape)
    for first, last in windows:
        keys = slice(first, last) if len(windows) > 1 else slice(0, shape[2])
        key = g.split(_part(g, projected.key, (keys.start, keys.stop)), projected.heads)
        step = max(1, BLOCK_BYTES // (4 * projected.heads * (keys.stop - keys.start)))
        for begin in range(first, last, step):
            end = min(begin + step, last)
            query = g.split(_part(g, projected.query, (begin, end)), projected.heads)
            weights = _weights(g, query, key)
            g.show(stage, weights, shape, (slice(None), slice(begin, end), keys))
