"""The parts of every tab: titles of steps, cards that open, boxes for files, and the buttons of a run."""

from __future__ import annotations

from typing import Any

import gradio as gr

from panels.widgets.html_block import HIDDEN, html_block, visibility


def step_title(number: int, title: str, optional: bool = False) -> None:
    """Creates the heading of a numbered step."""
    small = " <small>optional</small>" if optional else ""
    html_block(f'<h2><span class="step">{number}</span>{title}{small}</h2>')


def folded_card(title: str, **settings: Any) -> gr.Accordion:
    """Creates a card that is closed at first; its content is created in a `with` block."""
    return gr.Accordion(title, open=False, elem_classes="card accordion-card", **settings)


def folded(title: str, **settings: Any) -> gr.Accordion:
    """Creates a part of a card that is closed at first; its content is created in a `with` block."""
    return gr.Accordion(title, open=False, elem_classes="plain", **settings)


def file_box(label: str, elem_id: str, several: bool = False) -> gr.File:
    """Creates a box for a file, or for several."""
    return gr.File(
        file_count="multiple" if several else "single",
        label=label,
        height="8.125rem",
        elem_id=elem_id,
        elem_classes="boxed",
    )


def start_and_cancel(label: str, start_id: str, cancel_id: str) -> tuple[gr.Button, gr.Button]:
    """Creates the button that begins a run and the one that cancels it, which is hidden."""
    with gr.Row(elem_classes="go"):
        start = gr.Button(label, variant="primary", elem_id=start_id)
        cancel = gr.Button("Cancel", variant="stop", visible=HIDDEN, elem_id=cancel_id)
    return start, cancel


def run_buttons(running: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns updates of the button that begins a run and of the one that cancels it: one of them is visible."""
    return gr.update(visible=visibility(not running)), gr.update(visible=visibility(running), interactive=True)
