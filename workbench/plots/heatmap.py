"""A heat map of stage errors: a row for each stage, a column for each side, coloured by error / limit.

Takes names and arrays, returns a matplotlib Figure. Blue is within the limit, red beyond it, white equal to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

COLOURS = "RdBu_r"
DECADES = 3.0  # range of colours on either side of the limit; farther errors have the colour of the end
BEYOND_ALL = "#7a0019"  # colour of errors that are not finite
_ROW_INCHES, _COLUMN_INCHES = 0.185, 0.85
_TOP_INCHES = 0.5
_DARK, _LIGHT = "#14202c", "#ffffff"


def heat_figure(stages: Sequence[str], sides: Sequence[str], errors: np.ndarray, limits: np.ndarray) -> Figure:
    """Returns the heat map of errors [stages, sides], each coloured by its multiple of `limits` of the same shape.

    The cell of a NaN error stays empty; an infinite error shows "not finite". Raises `ValueError` for tables of another
    shape, and for empty ones.
    """
    from matplotlib import colormaps

    if not errors.size or errors.shape != (len(stages), len(sides)) or limits.shape != errors.shape:
        raise ValueError(f"errors {errors.shape} and limits {limits.shape} of {len(stages)} stages, {len(sides)} sides")
    stages, sides = ([style.legible(name) for name in name_inches] for name_inches in (stages, sides))
    name_inches = max(style.text_inches(each, style.SMALL_POINTS) for each in stages) + 0.15
    widest = max(style.text_inches(each, style.SMALL_POINTS) for each in sides) + 0.15
    column = max(_COLUMN_INCHES, widest)
    width = max(name_inches + column * len(sides) + 0.1, style.NARROWEST_INCHES)
    height = _TOP_INCHES + _ROW_INCHES * len(stages) + 0.05
    figure = style.new_figure(width, height)
    axes_width, axes_height = column * len(sides) / width, _ROW_INCHES * len(stages) / height
    axes = figure.add_axes((name_inches / width, 0.05 / height, axes_width, axes_height), facecolor="none")
    colours = colormaps[COLOURS]
    axes.set_xlim(0, len(sides))
    axes.set_ylim(len(stages), 0)
    for row, side in np.ndindex(errors.shape):
        value = float(errors[row, side])
        if np.isnan(value):
            continue
        place = _place(value, float(limits[row, side]))
        colour = BEYOND_ALL if np.isinf(value) else colours(place)
        axes.add_patch(_cell(side, row, colour))
        ink = _DARK if np.isfinite(value) and 0.2 < place < 0.8 else _LIGHT
        text = "not finite" if np.isinf(value) else "0" if value == 0 else f"{value:.1e}"
        style.place_text(
            axes, side + 0.5, row + 0.5, text, fontsize=style.SMALL_POINTS - 1, color=ink, ha="center", va="center"
        )
    fonts = list(style.families("".join((*stages, *sides))))
    axes.set_xticks(np.arange(len(sides)) + 0.5, list(sides), parse_math=False, fontfamily=fonts)
    axes.set_yticks(np.arange(len(stages)) + 0.5, list(stages), parse_math=False, fontfamily=fonts)
    axes.xaxis.tick_top()
    axes.tick_params(colors=style.INK, labelsize=style.SMALL_POINTS, length=0, pad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)
    is_wide = column * len(sides) > 2.3  # inches; otherwise the line has the whole width
    figure.text(
        name_inches / width if is_wide else 0.5,
        1 - 0.12 / height,
        "relative L2; blue within the limit, red beyond",
        color=style.INK,
        fontsize=style.SMALL_POINTS - 1,
        va="center",
        ha="left" if is_wide else "center",
    )
    return figure


def _place(value: float, limit: float) -> float:
    """Returns the position of an error on the colour map, 0..1, with its limit in the middle."""
    if value == 0:
        return 0.0
    if limit == 0:
        return 1.0
    return float(np.clip(0.5 + np.log10(value / limit) / (2 * DECADES), 0.0, 1.0))


def _cell(side: int, row: int, colour: Any) -> Patch:
    from matplotlib.patches import Rectangle

    return Rectangle((side + 0.02, row + 0.04), 0.96, 0.92, facecolor=colour, edgecolor="none")
