"""The cells that two layers have in common: only these have a difference.

A layer of one picture may have other tokens, or the same tokens in another order, or rows at other times than the layer
of the same name in another picture. Its shape does not tell. Arrays; no models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.phrases import dimensions
from workbench.plots.layers import Axis, Layer

MAX_NAMED = 5  # tokens that a note names


@dataclass(frozen=True, eq=False)
class SharedCells:
    """The cells of two layers that stand for the same tokens, rows or times."""

    first: Layer  # reduced to these cells
    second_values: np.ndarray  # of the same shape
    notes: tuple[str, ...] = ()  # about what is left out, and what differs


def shared_cells(first: Layer, second: Layer) -> SharedCells:
    """Returns the cells that two layers share.

    Different tokens at an axis are matched by their texts, if no text is there twice; else by their places. Raises
    `BadInput`, which says what differs, if the layers have no cells in common.
    """
    first_values, second_values = np.asarray(first.values), np.asarray(second.values)
    if first.kind != second.kind or first_values.ndim != second_values.ndim:
        raise _shapes_differ(first, second)
    axes = {"x": -1, "y": -2} if first.kind in ("image", "table") else {"x": -1}
    reduced, notes = first, []
    for name, dimension in axes.items():
        first_axis, second_axis = getattr(first, name), getattr(second, name)
        _check_axes(first, first_axis, second_axis)
        if first_axis.unit != "tokens" or first_axis.ticks == second_axis.ticks:
            continue
        words, other_words = first_axis.ticks, second_axis.ticks
        shared_words = [word for word in words if word in other_words]
        if _are_unique(words) and _are_unique(other_words) and shared_words:
            first_values = first_values.take([words.index(word) for word in shared_words], axis=dimension)
            second_values = second_values.take([other_words.index(word) for word in shared_words], axis=dimension)
            reduced = replace(reduced, **{name: replace(first_axis, ticks=tuple(shared_words))})
            notes += _missing_words(first.title, words, other_words)
        elif len(words) == len(other_words):
            place = next(place for place, pair in enumerate(zip(words, other_words, strict=True)) if pair[0] != pair[1])
            notes.append(
                f"{first.title}: the tokens differ, such as {words[place]!r} in the first and {other_words[place]!r} "
                "in the second; the difference is between tokens at the same place"
            )
    if first_values.shape != second_values.shape:
        raise _shapes_differ(first, second)
    if first.kind == "lines" and first.labels != second.labels:
        raise BadInput(f"{first.title} has other lines in the first than in the second")
    return SharedCells(replace(reduced, values=first_values), second_values, tuple(notes))


def _check_axes(layer: Layer, first: Axis, second: Axis) -> None:
    """Raises `BadInput` if the cells of two axes are not of the same kind, or not at the same times."""
    if first.unit != second.unit:
        raise BadInput(f"{layer.title} is over {first.unit} in the first and over {second.unit} in the second")
    if first.unit == "seconds" and not np.allclose(first.step, second.step, rtol=1e-6):
        raise BadInput(
            f"the rows of {layer.title} are {first.step:g} s long in the first and {second.step:g} s in the second"
        )
    if first.unit == "seconds" and abs(first.start - second.start) > 1e-3 * first.step:
        raise BadInput(
            f"{layer.title} begins at {first.start:g} s in the first and at {second.start:g} s in the second"
        )
    if first.unit != "tokens" and len(first.ticks) == len(second.ticks) and first.ticks != second.ticks:
        raise BadInput(f"{layer.title} has other {first.unit} in the first than in the second")


def _are_unique(words: tuple[str, ...]) -> bool:
    return len(set(words)) == len(words)


def _missing_words(title: str, words: tuple[str, ...], other_words: tuple[str, ...]) -> list[str]:
    """Returns a note about the tokens that only one of two axes has, if there are any."""
    parts = [
        f"only the {side} has {_named(only)}"
        for side, only in (
            ("first", [word for word in words if word not in other_words]),
            ("second", [word for word in other_words if word not in words]),
        )
        if only
    ]
    return [f"{title}: {' and '.join(parts)}; the difference shows the other tokens"] if parts else []


def _named(words: list[str]) -> str:
    more = len(words) - MAX_NAMED
    return ", ".join(map(repr, words[:MAX_NAMED])) + (f" and {more} more" if more > 0 else "")


def _shapes_differ(first: Layer, second: Layer) -> BadInput:
    shapes = [dimensions(each.values.shape) for each in (first, second)]
    return BadInput(f"{first.title} is {shapes[0]} values in the first and {shapes[1]} in the second")
