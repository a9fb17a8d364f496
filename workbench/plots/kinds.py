"""How each kind of layer is drawn on the axes of its panel: images, lines, bands, bars, marks, spans, points, tables.

A new kind is one function and one entry in `DRAW`. `workbench.plots.stacked` makes the axes and sets their limits. This
file knows no models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.plots import style
from workbench.plots.layers import Layer, Scale
from workbench.plots.stages import DIFFERENCE_MAP, shrunk

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COLUMNS, MAX_ROWS = 1400, 700  # cells of an image
COLOURS = (style.SIGNAL, style.ACCENT, "#12b886", "#b26fd0", "#d0506f", "#8a8f3a", "#3fb8d2", style.QUIET)
_TEXT_MARGIN = 0.05  # inches between a text and the edge of its room


def draw_image(axes: Axes, layer: Layer, axes_width: float) -> None:
    """Draws an image [y, x]. If it has more cells than the figure has dots, draws means over neighbours."""
    if not layer.values.size:
        return
    x, y = layer.x, layer.y
    rows, columns = layer.values.shape
    extent = (x.start, x.end(columns), y.start, y.end(rows))
    axes.imshow(
        np.ma.masked_invalid(
            shrunk(layer.values, "mean", MAX_ROWS, MAX_COLUMNS)
            if layer.values.size > MAX_ROWS * MAX_COLUMNS
            else layer.values
        ),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        extent=extent,
        **colours_of(layer.scale),
    )


def colours_of(scale: Scale | None) -> dict[str, Any]:
    """Returns matplotlib's arguments for the colours of a scale."""
    if scale is None:
        return {"cmap": style.COLOUR_MAP}
    return {"cmap": DIFFERENCE_MAP if scale.diverging else style.COLOUR_MAP, "vmin": scale.low, "vmax": scale.high}


def _places(layer: Layer) -> np.ndarray:
    """Returns the horizontal places of the points of lines: the middles of their cells on a time axis."""
    cell_offset = 0.5 if layer.x.unit == "seconds" or layer.x.ticks else 0.0
    places: np.ndarray = layer.x.start + (np.arange(layer.cells) + cell_offset) * layer.x.step
    return places


def _lines(axes: Axes, layer: Layer, axes_width: float) -> None:
    places = _places(layer)
    marker = "." if len(places) < 40 else ""
    for line, colour in zip(layer.values, line_colours(len(layer.values)), strict=True):
        axes.plot(places, line, color=colour, linewidth=0.9, marker=marker, markersize=3)
    _few_ticks(axes)


def _few_ticks(axes: Axes) -> None:
    """Writes a few ticks at the vertical axis in full, because a common factor would cover the title."""
    axes.locator_params(axis="y", nbins=4)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}".replace("-", "\N{MINUS SIGN}"))


def line_colours(count: int) -> list[str]:
    """Returns a colour for each of `count` lines."""
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _band(axes: Axes, layer: Layer, axes_width: float) -> None:
    low, high = layer.values
    axes.fill_between(_places(layer), low, high, color=style.SIGNAL, linewidth=0.6, step="mid")
    peak = max(float(np.abs(layer.values[np.isfinite(layer.values)]).max(initial=0.0)), 0.02)
    axes.set_ylim(-1.08 * peak, 1.08 * peak)
    axes.locator_params(axis="y", nbins=4, symmetric=True)


def _bars(axes: Axes, layer: Layer, axes_width: float) -> None:
    starts = layer.x.start + np.arange(layer.cells) * layer.x.step
    axes.bar(starts, layer.values, width=layer.x.step * 0.92, align="edge", color=style.SIGNAL, linewidth=0)
    _few_ticks(axes)


def _marks(axes: Axes, layer: Layer, axes_width: float) -> None:
    axes.vlines(
        layer.values, 0, 1, transform=axes.get_xaxis_transform(), color=style.ACCENT, linewidth=0.9, linestyles="dashed"
    )
    for place, text in zip(layer.values, layer.labels, strict=False):
        style.place_text(axes, float(place), 1.0, text, transform=axes.get_xaxis_transform(), va="top", clip_on=True)


def _spans(axes: Axes, layer: Layer, axes_width: float) -> None:
    low, high = axes.get_xlim()
    frame = axes.get_xaxis_transform()
    is_own_panel = not layer.over
    ends = (0.0, max(float(layer.values.max()), 1e-3)) if layer.values.size and is_own_panel else (low, high)
    for number, (start, end) in enumerate(layer.values):
        colour = line_colours(number + 1)[-1] if is_own_panel else style.ACCENT
        axes.axvspan(start, end, color=colour, alpha=0.25 if is_own_panel else 0.12, linewidth=0)
        axes.vlines([start], 0, 1, transform=frame, color=colour, linewidth=0.8)
        text = layer.labels[number] if number < len(layer.labels) else ""
        span_inches = (end - start) / max(ends[1] - ends[0], 1e-9) * axes_width - _TEXT_MARGIN
        style.place_text(
            axes,
            float(start + end) / 2,
            0.5 if is_own_panel else 0.99,
            text,
            max(span_inches, 0.0),
            transform=frame,
            ha="center",
            va="center" if is_own_panel else "top",
            clip_on=True,
        )


def _points(axes: Axes, layer: Layer, axes_width: float) -> None:
    x, y = layer.values.reshape(-1, 2).T
    if layer.over and not layer.labels:
        axes.plot(x, y, color="#ffffff", linewidth=2.2, alpha=0.8)
        axes.plot(x, y, color=style.ACCENT, linewidth=1.2)
        return
    axes.scatter(x, y, s=12, color=style.SIGNAL if layer.labels else style.QUIET, linewidths=0)
    for point, text in zip(layer.values, layer.labels, strict=False):
        style.place_text(
            axes, float(point[0]), float(point[1]), f" {text}", fontsize=style.SMALL_POINTS - 1, clip_on=True
        )


def _table(axes: Axes, layer: Layer, axes_width: float) -> None:
    from matplotlib import colormaps

    draw_image(axes, layer, axes_width)
    rows, columns = layer.values.shape
    x, y, scale = layer.x, layer.y, layer.scale
    cell_inches = axes_width / max(columns, 1) - 0.03
    if cell_inches < 0.12 or not layer.labels:
        return
    colours = colormaps[colours_of(scale)["cmap"]]
    low, high = (scale.low, scale.high) if scale else (0.0, 1.0)
    for row, column in np.ndindex(rows, columns):
        red, green, blue, _ = colours((float(layer.values[row, column]) - low) / max(high - low, 1e-12))
        is_dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
        style.place_text(
            axes,
            x.start + (column + 0.5) * x.step,
            y.start + (row + 0.5) * y.step,
            layer.labels[row * columns + column],
            cell_inches,
            color="#ffffff" if is_dark else "#14202c",
            fontsize=style.SMALL_POINTS - 1,
            ha="center",
            va="center",
            clip_on=True,
        )


DRAW = {
    "image": draw_image,
    "lines": _lines,
    "band": _band,
    "bars": _bars,
    "marks": _marks,
    "spans": _spans,
    "points": _points,
    "table": _table,
}
"""How each kind of layer is drawn: a function of axes, layer and their width in inches."""
