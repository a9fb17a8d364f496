"""The values that a picture is made of: axes, a colour scale, and layers of numbers. Arrays; no models, no drawing.

`workbench.plots.stacked` draws them with matplotlib. The page draws the same values in the browser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Unit = Literal["seconds", "rows", "tokens", "layers", "value"]
Kind = Literal["image", "lines", "band", "bars", "marks", "spans", "points", "table"]
FLAT: tuple[Kind, ...] = ("marks", "spans")
"""Kinds that have no vertical axis."""


@dataclass(frozen=True)
class Axis:
    """One dimension of an array. Cell i of an image, bar i, and point i of a line are at `start + i * step`.

    A cell or a bar goes from there to the next place; a point of a line is drawn in the middle of its cell if the axis
    is in seconds, and at its place otherwise.
    """

    label: str
    unit: Unit = "value"
    start: float = 0.0
    step: float = 1.0
    ticks: tuple[str, ...] = ()  # a word for each cell, in place of numbers
    down: bool = False  # of a vertical axis: the first cell is on top

    def end(self, cells: int) -> float:
        """Returns the place after the last of `cells` cells."""
        return self.start + cells * self.step


@dataclass(frozen=True)
class Scale:
    """The colour scale of an image or a table: the values of its two ends. A diverging scale is white in the middle."""

    name: str  # what the values are, such as "probability"
    low: float
    high: float
    diverging: bool = False


@dataclass(frozen=True, eq=False)
class Layer:
    """One part of a picture.

    The arrays of each kind:

    | kind | values | labels |
    | --- | --- | --- |
    | image | [y, x]; [n, y, x] are n small images side by side | the names of the n images |
    | lines | [lines, x] | the name of each line |
    | band | [2, x], the least and the greatest value of each interval | none |
    | bars | [x] | a text over each bar, or none |
    | marks | [n], places on the horizontal axis | a text at each mark, or none |
    | spans | [n, 2], start and end on the horizontal axis | the text of each span |
    | points | [n, 2], x and y | a text at each point, or none |
    | table | [y, x], the colour of each cell | the text of each cell, row by row |
    """

    name: str  # lower-case letters, digits and underscores; unique within a picture
    kind: Kind
    title: str
    values: np.ndarray
    x: Axis
    y: Axis = Axis("")
    labels: tuple[str, ...] = ()
    scale: Scale | None = None
    over: bool = False  # whether it is drawn over the layer before it, on the same axes

    @property
    def cells(self) -> int:
        """The number of cells along the horizontal axis; 0 for marks, spans and points."""
        return 0 if self.kind in (*FLAT, "points") or not self.values.ndim else self.values.shape[-1]


def scale_of(name: str, *arrays: np.ndarray, low: float | None = None, high: float | None = None) -> Scale:
    """Returns a scale from the least to the greatest finite value of some arrays; `low` and `high` override them."""
    finite = [array[np.isfinite(array)] for array in arrays]
    parts = [each for each in finite if each.size]
    lowest = low if low is not None else float(min((each.min() for each in parts), default=0.0))
    highest = high if high is not None else float(max((each.max() for each in parts), default=1.0))
    return Scale(name, lowest, highest if highest > lowest else lowest + 1.0)


def diverging_scale(name: str, *arrays: np.ndarray) -> Scale:
    """Returns a scale with 0 in the middle that reaches the greatest finite magnitude of some arrays."""
    greatest = max((float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in arrays), default=0.0)
    return Scale(name, -(greatest or 1.0), greatest or 1.0, diverging=True)
