"""Draws layers below each other: panels with one time axis, each with its title and its colours.

Takes `workbench.plots.layers`, returns a matplotlib Figure. `workbench.plots.kinds` draws inside the axes. Knows no
models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.plots import style
from workbench.plots.kinds import DRAW, colours_of, draw_image, line_colours
from workbench.plots.layers import Axis, Layer, Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES = style.WIDTH_INCHES
LEFT_INCHES = 1.1  # room for words at the vertical axis
TITLE_INCHES, FOOT_INCHES = 0.3, 0.42  # above and below the axes of a panel
HEIGHTS = {"lines": 1.0, "band": 0.9, "bars": 0.9, "marks": 0.3, "spans": 0.28, "points": 3.6}
ROW_INCHES, MIN_INCHES, MAX_INCHES = 0.16, 1.0, 4.5  # of images and tables
SQUARE_INCHES = 3.4  # height of a matrix of layers or tokens
SMALL_INCHES = 1.9  # height of each of several small images
_MAX_TICKS = 40


@dataclass(frozen=True)
class Panel:
    """A layer and the layers that are drawn over it."""

    base: Layer
    over: tuple[Layer, ...]

    @property
    def is_square(self) -> bool:
        """Whether it is a square image whose two axes are the same rows, without times."""
        layer = self.base
        has_times = "seconds" in (layer.x.unit, layer.y.unit)
        return layer.kind == "image" and layer.values.ndim == 2 and layer.x.unit == layer.y.unit and not has_times

    @property
    def height_inches(self) -> float:
        """The height of its axes in inches."""
        layer = self.base
        if layer.kind == "image" and layer.values.ndim == 3:
            return SMALL_INCHES * -(-len(layer.values) // _columns(layer))
        if self.is_square:
            return SQUARE_INCHES
        if layer.kind in ("image", "table"):
            rows = layer.values.shape[0] if layer.values.ndim else 1
            row_inches = ROW_INCHES * rows if layer.y.ticks or layer.kind == "table" else 1.6
            return float(np.clip(row_inches, MIN_INCHES if layer.kind == "image" else 0.3, MAX_INCHES))
        return HEIGHTS[layer.kind]


def panels_of(layers: Sequence[Layer]) -> list[Panel]:
    """Returns the panels of layers: one for each layer that is not drawn over another."""
    groups: list[list[Layer]] = []
    for layer in layers:
        if not layer.over or not groups:
            groups.append([])
        groups[-1].append(layer)
    return [Panel(first, tuple(rest)) for first, *rest in groups]


def layers_figure(
    layers: Sequence[Layer], seconds: float | None = None, title: str = "", width: float = WIDTH_INCHES
) -> Figure:
    """Returns the layers as panels below each other.

    Args:
        seconds: the end of every time axis; by default the end of the longest layer.
        title: above the first panel.
        width: in inches.

    Raises `ValueError` if there is no layer.
    """
    panels = panels_of(layers)
    if not panels:
        raise ValueError("a figure needs a layer")
    head = 0.35 if title else 0.05
    height = head + sum(panel.height_inches + TITLE_INCHES + FOOT_INCHES for panel in panels)
    figure = style.new_figure(width, height)
    if title:
        words = style.shortened(style.legible(title), style.TEXT_POINTS + 1, width - 0.3)
        figure.text(
            0.15 / width,
            1 - 0.2 / height,
            words,
            color=style.INK,
            fontsize=style.TEXT_POINTS + 1,
            va="center",
            **style.font_of(words),
        )
    end = seconds or max((_end(layer) for layer in layers if layer.x.unit == "seconds"), default=1.0)
    top = height - head
    for panel in panels:
        top -= TITLE_INCHES
        place = (LEFT_INCHES, top - panel.height_inches, width - LEFT_INCHES - style.RIGHT_INCHES, panel.height_inches)
        _draw_panel(figure, panel, place, end)
        top -= panel.height_inches + FOOT_INCHES
    return figure


def _end(layer: Layer) -> float:
    if layer.cells:
        return layer.x.end(layer.cells)
    return float(layer.values.max()) if layer.values.size else 0.0


def _draw_panel(figure: Figure, panel: Panel, place: tuple[float, float, float, float], end: float) -> None:
    layer = panel.base
    width, height = figure.get_size_inches()
    left, bottom, panel_width, panel_height = place
    title = style.shortened(
        style.legible(layer.title), style.SMALL_POINTS, panel_width - 3.3 if layer.scale else panel_width
    )
    figure.text(
        left / width,
        (bottom + panel_height + 0.07) / height,
        title,
        color=style.INK,
        fontsize=style.SMALL_POINTS,
        **style.font_of(title),
    )
    if layer.kind == "image" and layer.values.ndim == 3:
        _draw_small(figure, layer, place)
    else:
        axes = _axes(
            figure,
            (left, bottom, min(panel_width, panel_height * 1.3) if panel.is_square else panel_width, panel_height),
        )
        DRAW[layer.kind](axes, layer, panel_width)
        _limits(axes, layer, end, panel_width)
        for each in panel.over:
            DRAW[each.kind](axes, each, panel_width)
            if each.kind not in ("marks", "spans"):
                _limits(axes, layer, end, panel_width)
        _legend(figure, panel, place)
    if layer.scale is not None:
        _scale(figure, layer.scale, (left + panel_width - 1.3, bottom + panel_height + 0.09))


def _axes(figure: Figure, place: tuple[float, float, float, float]) -> Axes:
    width, height = figure.get_size_inches()
    left, bottom, axes_width, axes_height = place
    axes = figure.add_axes((left / width, bottom / height, axes_width / width, axes_height / height), facecolor="none")
    axes.tick_params(colors=style.INK, labelsize=style.SMALL_POINTS - 1, length=3, width=0.8, which="both")
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(style.INK)
        spine.set_linewidth(0.8)
    return axes


def _limits(axes: Axes, layer: Layer, end: float, axes_width: float) -> None:
    """Sets the ends and the ticks of both axes."""
    x, y, values = layer.x, layer.y, layer.values
    if x.unit == "seconds":
        axes.set_xlim(0, max(end, 1e-3))
    elif layer.cells:
        axes.set_xlim(x.start, x.end(layer.cells))
    if layer.kind in ("image", "table"):
        rows = len(values)
        axes.set_ylim((y.end(rows), y.start) if y.down else (y.start, y.end(rows)))
        _tick_words(axes, y, rows, axes.get_position().height * axes.figure.get_size_inches()[1], "y")  # type: ignore[union-attr]
    if layer.kind in ("marks", "spans"):
        axes.set_yticks([])
        axes.set_ylim(0, 1)
        axes.spines["left"].set_visible(False)
    if layer.cells:
        _tick_words(axes, x, layer.cells, axes_width, "x")
    _name_axes(axes, x.label, y.label)
    if y.label:
        axes.yaxis.set_label_coords(-(LEFT_INCHES - 0.14) / axes_width, 0.5)


def _name_axes(axes: Axes, x: str, y: str) -> None:
    """Writes the names of both axes; an empty name writes nothing."""
    font: dict[str, Any] = {"color": style.INK, "fontsize": style.SMALL_POINTS - 1}
    if words := style.legible(x):
        axes.set_xlabel(words, labelpad=1, **font, **style.font_of(words))
    if words := style.legible(y):
        axes.set_ylabel(words, **font, **style.font_of(words))


def _tick_words(axes: Axes, axis: Axis, cells: int, inches: float, side: str) -> None:
    """Writes the words of an axis in the middles of their cells, as many as fit."""
    if not axis.ticks:
        return
    is_vertical = side == "y"
    cell_inches = inches / max(cells, 1)
    step = max(1, int(np.ceil(0.12 / max(cell_inches, 1e-6)))) if is_vertical else 1
    if not is_vertical:
        longest = max(style.text_inches(style.legible(word), style.SMALL_POINTS - 1) for word in axis.ticks) + 0.06
        step = max(1, int(np.ceil(min(longest, 0.8) / max(cell_inches, 1e-6))))
    step = max(step, -(-cells // _MAX_TICKS)) if is_vertical else step
    places = [axis.start + (cell + 0.5) * axis.step for cell in range(0, cells, step)]
    max_inches = LEFT_INCHES - 0.35 if is_vertical else max(cell_inches * step - 0.04, 0.1)
    words = [_fitting(style.legible(word), max_inches) for word in axis.ticks[:cells:step]]
    (axes.set_yticks if is_vertical else axes.set_xticks)(places[: len(words)])
    (axes.set_yticklabels if is_vertical else axes.set_xticklabels)(words, **style.font_of("".join(words)))


def _fitting(word: str, max_inches: float) -> str:
    """Returns a word shortened to `max_inches`. A stage's name keeps its end, which distinguishes it."""
    points, parts = style.SMALL_POINTS - 1, word.split(".")
    while len(parts) > 2 and style.text_inches(word, points) > max_inches:
        del parts[0]
        word = "…" + ".".join(parts)
    return style.shortened(word, points, max_inches)


def _columns(layer: Layer) -> int:
    """Returns the number of small images side by side."""
    return min(4, max(len(layer.values), 1))


def _draw_small(figure: Figure, layer: Layer, place: tuple[float, float, float, float]) -> None:
    """Draws several small images side by side, each with its name."""
    left, bottom, total_width, total_height = place
    columns = _columns(layer)
    rows = -(-len(layer.values) // columns)
    cell_width, cell_height = total_width / columns, total_height / rows
    for number, values in enumerate(layer.values):
        row, column = divmod(number, columns)
        cell_place = (
            left + column * cell_width,
            bottom + total_height - (row + 1) * cell_height + 0.28,
            cell_width - 0.25,
            cell_height - 0.45,
        )
        axes = _axes(figure, cell_place)
        x, y = layer.x, layer.y
        draw_image(axes, Layer(layer.name, "image", "", values, x, y, scale=layer.scale), cell_place[2])
        axes.set_xlim(x.start, x.end(values.shape[1]))
        axes.set_ylim((y.end(len(values)), y.start) if y.down else (y.start, y.end(len(values))))
        axes.locator_params(nbins=4)
        name = layer.labels[number] if number < len(layer.labels) else str(number)
        style.place_text(axes, 0.0, 1.02, name, cell_width - 0.3, transform=axes.transAxes, va="bottom")
        _name_axes(axes, x.label if row == rows - 1 else "", y.label if column == 0 else "")


def _legend(figure: Figure, panel: Panel, place: tuple[float, float, float, float]) -> None:
    """Writes the names of several lines in their colours above the panel, on the right."""
    layer = panel.base
    if layer.kind != "lines" or len(layer.labels) < 2:
        return
    width, height = figure.get_size_inches()
    left, bottom, panel_width, panel_height = place
    right = left + panel_width
    for name, colour in reversed([*zip(layer.labels, line_colours(len(layer.labels)), strict=True)][:8]):
        text = style.shortened(style.legible(name), style.SMALL_POINTS - 1, 1.6)
        baseline = (bottom + panel_height + 0.07) / height
        right -= style.text_inches(text, style.SMALL_POINTS - 1)
        font = style.font_of(text)
        figure.text(right / width, baseline, text, color=colour, fontsize=style.SMALL_POINTS - 1, **font)
        right -= 0.15
        if right < left + 2:
            break


def _scale(figure: Figure, scale: Scale, place: tuple[float, float]) -> None:
    """Draws a colour scale of 1.3 inches, its ends included, with its name before it."""
    width, height = figure.get_size_inches()
    left, bottom = place
    low, high = f"{scale.low:.3g}", f"{scale.high:.3g}"
    font_points = style.SMALL_POINTS - 1
    bar = 1.3 - style.text_inches(high, font_points) - 0.05
    axes = figure.add_axes((left / width, bottom / height, bar / width, 0.08 / height))
    axes.imshow(np.linspace(0, 1, 128)[None], aspect="auto", cmap=colours_of(scale)["cmap"])
    axes.set_axis_off()
    words = f"{style.shortened(style.legible(scale.name), font_points, 1.5)}   {low}"
    figure.text(
        (left - 0.05) / width,
        bottom / height,
        words,
        color=style.INK,
        fontsize=font_points,
        ha="right",
        **style.font_of(words),
    )
    figure.text((left + 1.3) / width, bottom / height, high, color=style.INK, fontsize=font_points, ha="right")
