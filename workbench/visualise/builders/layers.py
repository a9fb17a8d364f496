"""The view of layer similarity: linear CKA between the layers of a model, or between those of two."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import BadInput
from workbench.plots.layers import Axis, Layer, Scale
from workbench.visualise.drawn import Drawn
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.similarity import MOST_ROWS, cka_matrix, sampled
from workbench.visualise.stacks import stack_of

CKA = Scale("linear CKA", 0.0, 1.0)


def similarity(scene: Scene, options: ViewOptions) -> Drawn:
    """Returns the similarity of every layer of a stack with every other."""
    prefix, layers = _layers(scene, options)
    rows = sampled(len(layers[0]))
    values = cka_matrix(*[[layer[rows] for layer in layers]] * 2)
    axis = _axis(prefix, len(layers))
    image = Layer("cka", "image", f"similarity of {prefix}", values, axis, axis, scale=CKA)
    return Drawn("Layer similarity", (image,), notes=_notes(len(layers[0]), values))


def similarity_between(one: Scene, other: Scene, options: ViewOptions) -> Drawn:
    """Returns the similarity of every layer of one model with every layer of another that heard the same recording.

    Rows are compared at the same time where both models say when their rows were spoken. Raises `BadInput` if the rows
    of the two cannot be matched.
    """
    (ours, first), (theirs, second) = _layers(one, options), _layers(other, options)
    rows = _matched(one, other, (ours, len(first[0])), (theirs, len(second[0])))
    values = cka_matrix(
        *([layer[kept] for layer in layers] for layers, kept in zip((first, second), rows, strict=True))
    )
    image = Layer(
        "cka_between",
        "image",
        f"similarity of {one.side} (upwards) with {other.side}",
        values,
        _axis(theirs, len(second)),
        _axis(ours, len(first)),
        scale=CKA,
    )
    return Drawn("Layer similarity", (image,), notes=_notes(max(len(first[0]), len(second[0])), values))


def _layers(scene: Scene, options: ViewOptions) -> tuple[str, list[np.ndarray]]:
    prefix, count = stack_of(scene, options.stack)
    found = scene.stages(f"{prefix}.*")
    return prefix, [found[f"{prefix}.{number}"] for number in range(count)]


def _axis(prefix: str, count: int) -> Axis:
    return Axis(f"layer of {prefix.partition('.')[0]}", "layers", ticks=tuple(map(str, range(count))))


def _notes(rows: int, values: np.ndarray) -> tuple[str, ...]:
    few = (f"of {rows} rows, {MOST_ROWS} that are evenly spread were compared",) if rows > MOST_ROWS else ()
    unknown = ("a layer has no similarity (NaN) where all its rows are equal",) if np.isnan(values).any() else ()
    return few + unknown


def _matched(
    one: Scene, other: Scene, first: tuple[str, int], second: tuple[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of both that belong together: those of the same time, or those of the same number."""
    (ours, rows), (theirs, others) = first, second
    here, there = one.times(f"{ours}.0"), other.times(f"{theirs}.0")
    if rows == others and here == there:
        return sampled(rows), sampled(rows)
    if here is not None and there is not None:
        middles = here.start + (np.arange(rows) + 0.5) * here.step
        nearest = np.floor((middles - there.start) / there.step).astype(np.int64)
        kept = np.flatnonzero((nearest >= 0) & (nearest < others) & (middles >= 0))
        if len(kept):
            kept = kept[sampled(len(kept))]
            return kept, nearest[kept]
    if rows != others:
        raise BadInput(
            f"{one.side} has {rows} rows in {ours} and {other.side} {others} in {theirs}, and their times are not "
            "known; expected the same rows"
        )
    return sampled(rows), sampled(rows)
