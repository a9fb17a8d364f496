"""The inputs of the Transcribe tab, card by card: each function creates one and returns its components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gradio as gr

from panels.transcribe.live import live_microphone
from panels.transcribe.view import normaliser_label
from panels.widgets.engine_inputs import make_settings
from panels.widgets.html_block import HIDDEN, html_block
from panels.widgets.recording_inputs import RecordingInputs, recording_inputs
from panels.widgets.samples import Sample
from panels.widgets.tab_parts import folded, folded_card, step_title
from panels.widgets.timeline import timeline_beside
from workbench.text.normalisers import NORMALISERS

ENGINE = """<p class="muted small">The first run starts an engine, which takes up to a minute. All later runs with the
same settings use the same engine, also those of other visitors.</p>"""


def recording_card(samples: Sequence[Sample]) -> RecordingInputs:
    """Creates the card with the recordings and the live microphone; returns the inputs for recordings."""
    with gr.Column(elem_classes="card"):
        step_title(1, "Recording")
        recording = recording_inputs(samples, "Recordings to transcribe", 9.375, several=True)
        timeline_beside("timeline")
        with folded("Live: write while you speak"):
            live_microphone()
    return recording


class Reference(NamedTuple):
    """The card with the reference text."""

    text: gr.Textbox
    normaliser: gr.Dropdown


def reference_card() -> Reference:
    """Creates the card with the reference text; returns its inputs."""
    with gr.Column(elem_classes="card"):
        step_title(3, "Reference", optional=True)
        text = gr.Textbox(
            label="Reference text",
            info="The words that are spoken. For several recordings, one line each.",
            lines=2,
            max_lines=8,
            elem_id="reference",
        )
        normaliser = gr.Dropdown(
            [(normaliser_label(each), name) for name, each in NORMALISERS.items()],
            value="basic",
            label="Normaliser",
            info="It changes the reference and the transcript before they are compared; the raw text is kept.",
            elem_id="normaliser",
        )
    return Reference(text, normaliser)


class Engine(NamedTuple):
    """The card with the settings of engines, which is hidden while there can be none."""

    card: gr.Accordion
    settings: list[gr.components.Component]


def engine_card() -> Engine:
    """Creates the card with the settings of engines; returns it with its inputs."""
    with folded_card("vLLM engine", visible=HIDDEN, elem_id="engine") as card:
        html_block(ENGINE)
        return Engine(card, make_settings())
