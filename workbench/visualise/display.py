"""Shows a picture in a notebook, as HTML: the drawing, what it shows, and the Python code that makes it again."""

from __future__ import annotations

from typing import Any

from workbench.display.html import card, element, facts, folded, notes
from workbench.display.pictures import picture as image
from workbench.visualise.picture import Picture


def picture_html(found: Picture) -> str:
    """Returns a picture as HTML: the drawing, its explanation, its notes and its code."""

    def draw() -> Any:
        from workbench.plots.stacked import layers_figure

        return layers_figure(found.layers, found.seconds)

    drawn = image(draw, f"{found.title}: {found.side}")
    length = f"{found.seconds:.2f} s" if found.seconds is not None else None
    code = [folded("The Python that makes it again", element("pre", found.code))] if found.code else []
    return card(
        f"{found.title}: {found.side}",
        element("p", found.sentence, class_="quiet"),
        drawn,
        facts(f"view {found.view}", length),
        notes(found.notes),
        *code,
    )
