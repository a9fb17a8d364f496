"""This project's HTML as a Gradio component, without Gradio's styles for text."""

from __future__ import annotations

from typing import Any, Literal

import gradio as gr

from panels.widgets.markup import events_script
from workbench.registry.sources import assets

HIDDEN: Literal["hidden"] = "hidden"
"""Hides a component that stays in the page.

Gradio builds a component with `visible=False` only when it is first shown. It rebuilds it while more updates arrive,
which empties inputs that a user has filled by then.
"""

HIDING_CLASS = "away"
"""The class of the style sheet that hides an element."""


def visibility(visible: bool) -> Literal["hidden"] | bool:
    """Returns the value of `visible` for a component that events show and hide."""
    return visible or HIDDEN


def visibility_classes(visible: bool, *classes: str) -> list[str]:
    """Returns the `elem_classes` of a row or a column that events show and hide.

    Gradio's "hidden" does not hide rows and columns.

    Args:
        classes: its other classes.
    """
    return [*classes, *([] if visible else [HIDING_CLASS])]


def html_block(value: str = "", *events: str, **settings: Any) -> gr.HTML:
    """Returns a component that shows HTML; its buttons (`markup.button`) trigger the named events."""
    return gr.HTML(value, js_on_load=events_script(*events), apply_default_css=False, **settings)


def scripted_html(script: str, value: str = "", **settings: Any) -> gr.HTML:
    """Returns a component that shows HTML, with a script of assets/ that triggers its events."""
    code = (assets() / script).read_text(encoding="utf-8")
    return gr.HTML(value, js_on_load=code, apply_default_css=False, **settings)
