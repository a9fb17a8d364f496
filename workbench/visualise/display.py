"""Shows a picture in a notebook, as HTML: the drawing, what it shows, and the Python code that makes it again."""

from __future__ import annotations

from typing import Any

from workbench.display.html import card, element, facts, folded, notes
from workbench.display.pictures import picture as image
from workbench.visualise.picture import Picture


def picture_html(picture: Picture) -> str:
    """Returns a picture as HTML: the drawing, its explanation, its notes and its code."""

    def draw() -> Any:
        from workbench.plots.stacked import layers_figure

        return layers_figure(picture.layers, picture.seconds)

    drawing = image(draw, f"{picture.title}: {picture.side}")
    length = f"{picture.seconds:.2f} s" if picture.seconds is not None else None
    code = [folded("The Python that makes it again", element("pre", picture.code))] if picture.code else []
    return card(
        f"{picture.title}: {picture.side}",
        element("p", picture.sentence, class_="quiet"),
        drawing,
        facts(f"view {picture.view}", length),
        notes(picture.notes),
        *code,
    )
