"""Guesses at relative positions of an attention: other distances, biases, factors and sinusoids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from workbench.compare.guesses.attended import Attention, Distances
from workbench.compare.guesses.guess import Linear

_BASES = (1000.0, 100.0, 100000.0, 1000000.0)

POSITIONS = ("attention.positions", "attention.content_bias", "attention.position_bias")
"""The names of the parameters of a layer's relative positions."""


def distances_of(layers: Mapping[str, Linear], layer: str) -> Distances | None:
    """Returns the relative positions of a layer with these parameters; None if one is missing."""
    names = [f"{layer}.{each}" for each in POSITIONS]
    if any(each not in layers for each in names):
        return None
    weight, content_bias, position_bias = (np.asarray(layers[each].weight, np.float64) for each in names)
    return Distances(weight, content_bias, position_bias)


def by_distances(right: Attention) -> Iterator[tuple[str, Attention]]:
    """Yields other relative positions, if the attention has some."""
    if (distances := right.distances) is None:
        return
    for words, changed in (*_other_distances(distances, len(right.k)), *_other_biases(distances)):
        yield words, replace(right, distances=changed)
    root = right.q.shape[2] ** 0.5
    for words, content, position in (
        ("the scores of the positions are left out", 1.0, 0.0),
        ("the scores of the positions are not divided by the root of the head's width", 1.0, root),
        ("the scores of the content are not divided by the root of the head's width", root, 1.0),
        ("the scores of the positions are subtracted", 1.0, -1.0),
    ):
        yield words, replace(right, distances=replace(distances, content_times=content, position_times=position))


def _other_distances(right: Distances, count: int) -> Iterator[tuple[str, Distances]]:
    for words, between in (
        ("its relative positions are reversed: they grow from query to key", lambda q, k: k - q),
        ("its relative positions are off by +1", lambda q, k: q - k + 1),
        ("its relative positions are off by -1", lambda q, k: q - k - 1),
        ("its relative positions are distances without a sign", lambda q, k: abs(q - k)),
        ("its positions are those of the keys, counted from 0, not relative to the query", lambda q, k: k + 0 * q),
        ("its positions are those of the keys, counted from 1, not relative to the query", lambda q, k: k + 1 + 0 * q),
        ("its scores by distance are not shifted by the row of the query: they begin with the farthest",
         lambda q, k: count - 1 - k + 0 * q),
        ("its scores by distance are not shifted by the row of the query: they begin with distance 0",
         lambda q, k: 0 * q - k),
    ):  # fmt: skip
        yield words, replace(right, between=between)
    yield (
        "its sinusoids have all sines before all cosines, where the reference has them in turn",
        replace(right, layout="halves"),
    )
    for base in _BASES:
        yield (
            f"its sinusoids have the base {base:.0f}, where the reference has {right.base:.0f}",
            replace(right, base=base),
        )
    yield "the projection of its positions is left out", replace(right, weight=np.eye(len(right.weight)))
    yield "the weight of the projection of its positions is transposed", replace(right, weight=right.weight.T)


def _other_biases(right: Distances) -> Iterator[tuple[str, Distances]]:
    u, v = right.content_bias, right.position_bias

    def by_width(bias: np.ndarray) -> np.ndarray:
        return bias.reshape(bias.shape[::-1]).T

    for words, content, position in (
        ("the biases of content and position (u and v) are exchanged", v, u),
        ("the bias of the content (u) is left out", 0 * u, v),
        ("the bias of the position (v) is left out", u, 0 * v),
        ("the biases of content and position (u and v) are left out", 0 * u, 0 * v),
        ("the bias of the content (u) is added for the position too, in the place of v", u, u),
        ("the bias of the position (v) is added for the content too, in the place of u", v, v),
        ("the biases of content and position (u and v) are read as widths by heads", by_width(u), by_width(v)),
    ):
        yield words, replace(right, content_bias=content, position_bias=position)
