"""Matplotlib figures as images inside HTML. This file makes no figure: the caller does."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.display.html import Html, card, element

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 144  # of the image; it is shown at 96, so that it is sharp and small
SHOWN_PER_INCH = 96
NO_MATPLOTLIB = "Pictures need matplotlib: pip install matplotlib"


def picture(draw: Callable[[], Figure], meaning: str, caption: str = "") -> Html:
    """Returns the figure that `draw` makes as a PNG with a transparent background.

    Without matplotlib, which a library without a page does not need, it returns a sentence that says so.

    Args:
        meaning: what the picture shows, for readers who cannot see it.
    """
    try:
        figure = draw()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        return element("p", NO_MATPLOTLIB, class_="quiet")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DOTS_PER_INCH, transparent=True)
    width, height = (round(side * SHOWN_PER_INCH) for side in figure.get_size_inches())
    source = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
    image = element("img", alt=meaning, width=width, height=height, src=source)
    return element("figure", image, *([element("figcaption", caption)] if caption else []))


def pictures(*images: Html) -> Html:
    """Returns pictures side by side, as many as fit."""
    return element("div", *images, class_="pictures")


@dataclass(frozen=True, eq=False)
class Plot:
    """A matplotlib figure that a notebook shows in its own size, on the page's background, light or dark."""

    figure: Figure
    title: str
    caption: str = ""

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"<Plot {self.title!r}: {width:g} x {height:g} inches>"

    def _repr_html_(self) -> str:
        return card(self.title, picture(lambda: self.figure, self.title, self.caption))
