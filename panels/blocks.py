"""HTML of our own as a Gradio component, without the styles that Gradio gives to running text."""

from __future__ import annotations

from typing import Any

import gradio as gr

from panels.markup import events_script
from workbench.sources import assets


def html_block(value: str = "", *events: str, **settings: Any) -> gr.HTML:
    """A component that shows HTML; buttons in it (`markup.button`) trigger the named events."""
    return gr.HTML(value, js_on_load=events_script(*events), apply_default_css=False, **settings)


def scripted_html(script: str, value: str = "", **settings: Any) -> gr.HTML:
    """As `html_block`, with a script of assets/ that triggers the events."""
    written = (assets() / script).read_text(encoding="utf-8")
    return gr.HTML(value, js_on_load=written, apply_default_css=False, **settings)
