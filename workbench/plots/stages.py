"""Plots of one stage of two computations: each array, their difference, the error along either axis.

Takes arrays, returns matplotlib Figures. Positions are horizontal, channels vertical. Arrays larger than a figure are
drawn as means over neighbours, and differences as the largest among them, so that a single wrong value stays visible.
Rows are read a block at a time: an array in a file is never in memory as a whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from workbench.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

WIDTH_INCHES, HEIGHT_INCHES = 3.8, 2.3
WIDE_INCHES = 7.0
NOT_FINITE = "#12b886"  # colour of infinite and NaN values, which neither colour map contains
DIFFERENCE_MAP = "RdBu_r"  # blue below, red above
_TOP_INCHES = 0.42  # space for the colour scale
_MAX_COLUMNS, _MAX_ROWS = 400, 220  # cells of a figure
_CLIPPED_PERCENT = 0.2  # clipped at either end, so that an outlier does not take the contrast from other values

Reduction = Literal["mean", "largest"]


def shrunk(
    table: np.ndarray, reduction: Reduction = "mean", max_columns: int = _MAX_COLUMNS, max_rows: int = _MAX_ROWS
) -> np.ndarray:
    """Returns the values [positions, channels] as at most `max_columns` by `max_rows` cells of float64.

    A cell is the mean of its values, or the one with the largest magnitude. One infinite or NaN value makes its cell
    NaN.
    """
    rows, columns = table.shape
    row_edges, column_edges = (
        np.linspace(0, size, min(size, max_cells) + 1).astype(int)
        for size, max_cells in ((rows, max_columns), (columns, max_rows))
    )
    cells = np.empty((len(row_edges) - 1, len(column_edges) - 1))
    for number, (start, end) in enumerate(itertools.pairwise(row_edges)):
        block = table[start:end].astype(np.float64)
        block[~np.isfinite(block)] = np.nan
        if reduction == "mean":
            sums = np.add.reduceat(block.sum(axis=0), column_edges[:-1])
            cells[number] = sums / (np.diff(column_edges) * (end - start))
        else:
            highest = np.maximum.reduceat(block.max(axis=0), column_edges[:-1])
            lowest = np.minimum.reduceat(block.min(axis=0), column_edges[:-1])
            cells[number] = np.where(-lowest > highest, lowest, highest)
    return cells


def value_limits(table: np.ndarray) -> tuple[float, float]:
    """Returns the lowest and highest value for the colours of a table [rows, columns], without outliers."""
    cells = shrunk(table)
    finite = cells[np.isfinite(cells)]
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite, [_CLIPPED_PERCENT, 100 - _CLIPPED_PERCENT])
    return float(low), float(high if high > low else low + max(abs(low), 1.0) * 1e-6)


def array_figure(
    table: np.ndarray,
    limits: tuple[float, float] | None = None,
    along: str = "position",
    width: float = WIDTH_INCHES,
    height: float = HEIGHT_INCHES,
) -> Figure:
    """Returns an array [positions, channels] as an image with colours between `limits` (by default, its own).

    `along` names its positions.
    """
    colour_limits = limits or value_limits(table)
    return _image(shrunk(table), table.shape, style.COLOUR_MAP, colour_limits, "value", along, width, height)


def difference_figure(reference: np.ndarray, candidate: np.ndarray) -> Figure:
    """Returns candidate minus reference, both [positions, channels] of one shape, as an image; white means equal."""
    cells = shrunk(_Difference(reference, candidate), "largest")  # type: ignore[arg-type]
    finite = cells[np.isfinite(cells)]
    greatest = float(np.abs(finite).max()) if finite.size else 0.0
    return _image(cells, reference.shape, DIFFERENCE_MAP, (-(greatest or 1.0), greatest or 1.0), "difference")


class _Difference:
    """The candidate minus the reference, computed only for requested rows."""

    def __init__(self, reference: np.ndarray, candidate: np.ndarray):
        self.shape = reference.shape
        self._reference, self._candidate = reference, candidate

    def __getitem__(self, rows: slice) -> np.ndarray:
        with np.errstate(invalid="ignore", over="ignore"):
            difference: np.ndarray = self._candidate[rows].astype(np.float64) - self._reference[rows].astype(np.float64)
        return difference


def curves_figure(reference: np.ndarray, candidate: np.ndarray) -> Figure:
    """Returns the curves of two arrays [positions, 1] over their positions."""
    figure, axes = style.plain_axes("position", "value", 0.25, WIDTH_INCHES, HEIGHT_INCHES)
    for values, colour, thickness in ((reference, style.SIGNAL, 1.8), (candidate, style.ACCENT, 0.9)):
        cells = shrunk(values.reshape(-1, 1), "largest", 4 * _MAX_COLUMNS, 1)[:, 0]
        places = np.linspace(0, max(values.size - 1, 0), len(cells))
        axes.plot(places, cells, color=colour, linewidth=thickness)
    style.legend(figure, (("reference", style.SIGNAL), ("candidate", style.ACCENT)))
    return figure


def error_figure(errors: np.ndarray, along: str) -> Figure:
    """Returns root mean square errors [positions or channels] on a logarithmic scale; zeros are not drawn."""
    figure, axes = style.plain_axes(along, "error (RMS)", 0.15, WIDTH_INCHES, HEIGHT_INCHES)
    cells = shrunk(errors.reshape(-1, 1), "largest", 4 * _MAX_COLUMNS, 1)[:, 0] if errors.size else np.zeros(0)
    positive = np.where(cells > 0, cells, np.nan)
    places = np.linspace(0, max(errors.size - 1, 0), len(cells))
    if not np.isfinite(positive).any():
        axes.set_xticks([])
        axes.set_yticks([])
        style.place_text(axes, 0.5, 0.5, "no error", transform=axes.transAxes, ha="center", va="center")
        return figure
    _powers(axes, positive)
    axes.plot(
        places, positive, color=style.SIGNAL, linewidth=0.9, marker="." if len(positive) < 60 else "", markersize=3
    )
    return figure


def distances_figure(
    stages: Sequence[str], reference: Sequence[float], candidate: Sequence[float], bound: Sequence[float]
) -> Figure:
    """Returns the distances of both sides from float64 over the stages, with the bound above which a distance is a bug.

    Distances that are 0 or infinite are not drawn.
    """
    longest = max((style.text_inches(stage, style.SMALL_POINTS - 1) for stage in stages), default=0.0)
    bottom = min(longest, 1.6) + 0.15
    figure, axes = style.plain_axes("", "relative L2", 0.25, WIDE_INCHES, 2.0 + bottom, bottom)
    _powers(axes, np.array([*reference, *candidate, *bound], np.float64))
    lines = (("reference", style.SIGNAL, reference, "-"), ("candidate", style.ACCENT, candidate, "-"))
    for _, colour, values, dash in (*lines, ("bound", style.QUIET, bound, "--")):
        positive = np.array([value if 0 < value < np.inf else np.nan for value in values])
        axes.plot(range(len(positive)), positive, dash, color=colour, linewidth=1.1, marker=".", markersize=3)
    max_names = max(1, int((WIDE_INCHES - style.LEFT_INCHES - style.RIGHT_INCHES) / 0.15))
    places = range(0, len(stages), max(1, -(-len(stages) // max_names)))
    names = [style.shortened(style.legible(stages[place]), style.SMALL_POINTS - 1, 1.6) for place in places]
    fonts = list(style.families("".join(names)))
    axes.set_xticks(
        list(places), names, rotation=90, fontsize=style.SMALL_POINTS - 1, parse_math=False, fontfamily=fonts
    )
    style.legend(figure, [*((name, colour) for name, colour, _, _ in lines), ("bug above", style.QUIET)])
    return figure


def _image(
    cells: np.ndarray,
    shape: tuple[int, ...],
    colours: str,
    limits: tuple[float, float],
    name: str,
    along: str = "position",
    width: float = WIDTH_INCHES,
    height: float = HEIGHT_INCHES,
) -> Figure:
    from matplotlib import colormaps
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    figure, axes = style.plain_axes(along, "channel", _TOP_INCHES, width, height)
    if not cells.size:
        style.place_text(axes, 0.5, 0.5, "empty", transform=axes.transAxes, ha="center", va="center")
        return figure
    image = axes.imshow(
        np.ma.masked_invalid(cells.T),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, shape[0] - 0.5, -0.5, shape[1] - 0.5),
        cmap=colormaps[colours].with_extremes(bad=NOT_FINITE),
        norm=Normalize(*limits),
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
    _scale(figure, image, name)
    return figure


def _powers(axes: Axes, values: np.ndarray) -> None:
    """Sets a logarithmic vertical scale for the positive values, with as many labels as fit."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    positive = values[np.isfinite(values) & (values > 0)]
    low, high = (float(positive.min()) / 1.3, float(positive.max()) * 1.3) if positive.size else (0.1, 10.0)
    decades = math.log10(high / low)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=range(1, 10) if decades < 0.5 else (1, 2, 5) if decades < 2 else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("e-0", "e-")))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _scale(figure: Figure, image: AxesImage, name: str) -> None:
    """Draws a horizontal colour scale above the figure, labelled with its two ends, whatever their power of ten."""
    width, height = figure.get_size_inches()
    length = 1.3
    right, bottom = width - style.RIGHT_INCHES - 0.15, height - 0.14
    place = ((right - length) / width, bottom / height, length / width, 0.08 / height)
    scale = figure.colorbar(image, cax=figure.add_axes(place), orientation="horizontal")
    scale.outline.set_visible(False)
    low, high = image.get_clim()
    ends = float(low or 0.0), float(high or 0.0)
    centre_tick = [(ends[0] + ends[1]) / 2] if abs(ends[0] + ends[1]) < 1e-9 * abs(ends[1]) else []
    ticks = [ends[0], *centre_tick, ends[1]]
    scale.set_ticks(ticks, labels=[_tick(tick) for tick in ticks])
    scale.ax.tick_params(colors=style.INK, labelsize=style.SMALL_POINTS - 1, length=2, width=0.6, pad=1)
    left = (right - length - 0.3) / width
    size = style.SMALL_POINTS
    figure.text(left, (bottom + 0.04) / height, name, color=style.INK, fontsize=size, ha="right", va="center")


def _tick(value: float) -> str:
    return f"{value:.0f}" if 10 <= abs(value) < 10000 else f"{value:.2g}".replace("e-0", "e-").replace("e+0", "e")
