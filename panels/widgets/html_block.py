"""HTML of our own as a Gradio component, without the styles that Gradio gives to running text."""

from __future__ import annotations

from typing import Any, Literal

import gradio as gr

from panels.widgets.markup import events_script
from workbench.registry.sources import assets

HIDDEN: Literal["hidden"] = "hidden"
"""Out of sight but in the page. What Gradio has not in the page (`visible=False`) it builds when it is first shown, and
rebuilds while further updates arrive, which empties inputs that a user has written in by then."""

AWAY = "away"
"""The same as a class of the style sheet."""


def seen(now: bool) -> Literal["hidden"] | bool:
    """The `visible` of a component that comes and goes."""
    return now or HIDDEN


def run_buttons(running: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Updates of the button that begins a run and of the one that cancels it: one of them is seen."""
    return gr.update(visible=seen(not running)), gr.update(visible=seen(running), interactive=True)


def seen_classes(now: bool, *others: str) -> list[str]:
    """The `elem_classes` of a row or a column that comes and goes, which Gradio's "hidden" does not hide.

    Args:
        others: the classes that it has anyway.
    """
    return [*others, *([] if now else [AWAY])]


def html_block(value: str = "", *events: str, **settings: Any) -> gr.HTML:
    """A component that shows HTML; buttons in it (the macro `button`) trigger the named events."""
    return gr.HTML(value, js_on_load=events_script(*events), apply_default_css=False, **settings)


def scripted_html(script: str, value: str = "", **settings: Any) -> gr.HTML:
    """As `html_block`, with a script of assets/ that triggers the events."""
    written = (assets() / script).read_text(encoding="utf-8")
    return gr.HTML(value, js_on_load=written, apply_default_css=False, **settings)
