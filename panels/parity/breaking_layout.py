"""The card "Break it yourself" of the Parity tab: layout and wiring only. The event handlers are in `breaking`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gradio as gr

from panels.parity.breaking import KINDS, BreakingActions, Game
from panels.running.wiring import COMPUTING, wire
from panels.widgets.html_block import html_block
from panels.widgets.scrolling import show_results
from panels.widgets.tab_parts import folded_card
from workbench.parity_lab.breaking import FAULTS

EXPLANATION = """<p class="muted small">This changes a copy of a demo model and compares the copy with the original. All
changes are faults, except 4-bit weights, which only round. The input is the recording above, or else the first
sample.</p>"""
SHOW_RESULTS = show_results("parity-results")
GAME = """<h4>A game</h4><p class="muted small">The page changes a copy and does not show how. Find the
first wrong stage, if there is one.</p>"""


class Breaking(NamedTuple):
    """The components of the card, from top to bottom."""

    fault: gr.Radio
    plant: gr.Button
    hide: gr.Button
    stage: gr.Dropdown
    kind: gr.Dropdown
    reveal: gr.Button
    answer: gr.HTML
    game: gr.State


def breaking_card() -> Breaking:
    """Creates the card at the current position of the page."""
    with folded_card("Break it yourself", elem_id="parity-breaking"):
        html_block(EXPLANATION)
        choices = [(each.title, each.name) for each in FAULTS]
        fault = gr.Radio(choices, value=FAULTS[0].name, label="Change", elem_id="parity-fault")
        plant = gr.Button("Change a copy and compare", elem_id="parity-plant")
        html_block(GAME)
        hide = gr.Button("Hide a change", elem_id="parity-hide")
        stage = gr.Dropdown([], label="First wrong stage", elem_id="parity-guess")
        kind = gr.Dropdown(
            [(title, name) for name, title in KINDS], value=None, label="What was changed", elem_id="parity-kind"
        )
        reveal = gr.Button("Reveal", elem_id="parity-reveal")
        answer = html_block("", elem_id="parity-answer")
    return Breaking(fault, plant, hide, stage, kind, reveal, answer, gr.State(Game()))


def wire_breaking(
    card: Breaking,
    actions: BreakingActions,
    recording: gr.File,
    run_outputs: Sequence[Any],
    stage_html: gr.HTML,
    wire_first_stage: Callable[[Any], Any],
) -> None:
    """Wires the card.

    Args:
        run_outputs: the outputs of a comparison; the first one is the result.
        stage_html: the output for the open stage; empty while a fault is hidden.
        wire_first_stage: wires what follows a finished comparison.
    """
    computing = COMPUTING | {"js": SHOW_RESULTS}
    wire_first_stage(wire(card.plant.click, actions.plant, [card.fault, recording], run_outputs, **computing))
    hidden = wire(
        card.hide.click,
        actions.hide,
        [card.game, recording],
        [*run_outputs, card.game, card.stage, card.answer],
        **computing,
    )
    hidden.then(lambda: "", None, stage_html, api_visibility="private", show_progress="hidden")
    wire_first_stage(
        wire(
            card.reveal.click,
            actions.reveal,
            [card.game, card.stage, card.kind],
            [run_outputs[0], card.game, card.answer],
        )
    )
