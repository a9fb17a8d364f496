"""Guesses at heads of attention: a fused projection of queries, keys and values that is laid out by head."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close, table

_PROJECTED = ("query", "key", "value")


def fused(scene: Scene) -> Iterator[Guess]:
    """Yields heads of the reference's queries, keys and values, in another order than the reference divides them."""
    layer, dot, part = scene.stage.rpartition("attention.")
    if part not in _PROJECTED or scene.reference.ndim != 3:
        return
    projections = [
        (name, scene.reference_stages[full])
        for name in _PROJECTED
        if (full := f"{layer}{dot}{name}") in scene.reference_stages
    ]
    shape = (len(scene.reference), scene.reference.shape[2])
    heads = [(name, n) for name, x in projections if x.ndim == 3 and x.shape[::2] == shape for n in range(x.shape[1])]
    arrays = dict(projections)
    rows = scene.sample
    order = []
    for number in range(scene.candidate.shape[1]):
        candidate_head = table(scene.candidate[rows, number])
        fitting = (
            each for each in heads if is_close(table(arrays[each[0]][rows, each[1]]), candidate_head, 2 * scene.allowed)
        )
        order.append(next(fitting, None))
    reference_heads = [each for each in order if each is not None]
    if (
        len(reference_heads) < len(order)
        or len(set(reference_heads)) < len(reference_heads)
        or len({name for name, _ in reference_heads}) < 2
    ):
        return
    listing = ", ".join(f"{name} {number}" for name, number in reference_heads[:6]) + (
        " and so on" if len(reference_heads) > 6 else ""
    )
    words = (
        f"its heads are the reference's {listing}, as when a fused projection of queries, keys and values is laid out"
    )

    def expected(rows: Rows) -> np.ndarray:
        return table(np.stack([arrays[name][rows, number] for name, number in reference_heads], axis=1))

    yield Guess("fused projection", f"{words} by head", expected)
