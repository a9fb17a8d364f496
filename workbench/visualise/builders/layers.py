"""The view of layer similarity: linear CKA between the layers of a model, or between those of two."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import BadInput
from workbench.plots.layers import Axis, Layer, Scale
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.similarity import MAX_ROWS, cka_matrix, sampled
from workbench.visualise.stacks import stack_of
from workbench.visualise.view_content import ViewContent

CKA = Scale("linear CKA", 0.0, 1.0)


def similarity(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the similarity of every layer of a stack with every other."""
    prefix, layers = _layers(scene, options)
    rows = sampled(len(layers[0]))
    values = cka_matrix(*[[layer[rows] for layer in layers]] * 2)
    axis = _axis(prefix, len(layers))
    image = Layer("cka", "image", f"similarity of {prefix}", values, axis, axis, scale=CKA)
    return ViewContent("Layer similarity", (image,), notes=_notes(len(layers[0]), values))


def similarity_between(first: Scene, second: Scene, options: ViewOptions) -> ViewContent:
    """Returns the similarity of every layer of one model with every layer of another that heard the same recording.

    Rows are compared at the same time where both models say when their rows were spoken. Raises `BadInput` if the rows
    of the two cannot be matched.
    """
    (first_stack, first_layers), (second_stack, second_layers) = _layers(first, options), _layers(second, options)
    rows = _matched(first, second, (first_stack, len(first_layers[0])), (second_stack, len(second_layers[0])))
    values = cka_matrix(
        *(
            [layer[matched] for layer in layers]
            for layers, matched in zip((first_layers, second_layers), rows, strict=True)
        )
    )
    image = Layer(
        "cka_between",
        "image",
        f"similarity of {first.side} (upwards) with {second.side}",
        values,
        _axis(second_stack, len(second_layers)),
        _axis(first_stack, len(first_layers)),
        scale=CKA,
    )
    return ViewContent(
        "Layer similarity", (image,), notes=_notes(max(len(first_layers[0]), len(second_layers[0])), values)
    )


def _layers(scene: Scene, options: ViewOptions) -> tuple[str, list[np.ndarray]]:
    prefix, count = stack_of(scene, options.stack)
    stages = scene.stages(f"{prefix}.*")
    return prefix, [stages[f"{prefix}.{number}"] for number in range(count)]


def _axis(prefix: str, count: int) -> Axis:
    return Axis(f"layer of {prefix.partition('.')[0]}", "layers", ticks=tuple(map(str, range(count))))


def _notes(rows: int, values: np.ndarray) -> tuple[str, ...]:
    sample_note = (f"of {rows} rows, {MAX_ROWS} that are evenly spread were compared",) if rows > MAX_ROWS else ()
    nan_note = ("a layer has no similarity (NaN) where all its rows are equal",) if np.isnan(values).any() else ()
    return sample_note + nan_note


def _matched(
    first: Scene, second: Scene, first_shape: tuple[str, int], second_shape: tuple[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of both that belong together: those of the same time, or those of the same number."""
    (first_stack, first_rows), (second_stack, second_rows) = first_shape, second_shape
    first_times, second_times = first.times(f"{first_stack}.0"), second.times(f"{second_stack}.0")
    if first_rows == second_rows and first_times == second_times:
        return sampled(first_rows), sampled(first_rows)
    if first_times is not None and second_times is not None:
        middles = first_times.start + (np.arange(first_rows) + 0.5) * first_times.step
        second_indices = np.floor((middles - second_times.start) / second_times.step).astype(np.int64)
        first_indices = np.flatnonzero((second_indices >= 0) & (second_indices < second_rows) & (middles >= 0))
        if len(first_indices):
            first_indices = first_indices[sampled(len(first_indices))]
            return first_indices, second_indices[first_indices]
    if first_rows != second_rows:
        raise BadInput(
            f"{first.side} has {first_rows} rows in {first_stack} and {second.side} {second_rows} in {second_stack}, "
            "and their times are not known; expected the same rows"
        )
    return sampled(first_rows), sampled(first_rows)
