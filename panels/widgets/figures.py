"""Figures as parts of the page, each drawn twice: for wide screens and for phones."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from markupsafe import Markup

from panels.widgets.templates import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE_INCHES, NARROW_INCHES = 7.5, 4.2  # widths of the pictures, for wide screens and for phones
NARROW_PIXELS = 640


def picture(
    caption: str, alternative: str, draw: Callable[[float, float], Figure], heights: tuple[float, float]
) -> Markup:
    """Returns a figure with its caption.

    Args:
        alternative: a description for people who cannot see it.
        draw: draws it for a width and a height in inches.
        heights: wide and narrow.
    """
    wide, narrow = (_png(draw(width, height)) for width, height in zip((WIDE_INCHES, NARROW_INCHES), heights))
    return render("widgets/parts.html", "figure", wide, narrow, NARROW_PIXELS, alternative, caption)


def _png(figure: Figure) -> str:
    """Returns the figure as a data URL."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
