"""The inputs of the Visualise tab, card by card: each function creates one and returns its components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gradio as gr

from panels.visualise.events import ACCORDION, NOTHING
from panels.widgets.html_block import HIDDEN, html_block, visibility_classes
from panels.widgets.option_inputs import OptionField, make_inputs
from panels.widgets.recording_inputs import RecordingInputs, recording_inputs
from panels.widgets.samples import Sample
from panels.widgets.tab_parts import step_title
from workbench.registry.registry import Registry


class Sources(NamedTuple):
    """The first card. What a model does not take is hidden: `speech` or `text`."""

    speech: gr.Column
    recording: RecordingInputs
    text: gr.Textbox
    model: gr.Dropdown
    compared_model: gr.Dropdown


def sources_card(samples: Sequence[Sample]) -> Sources:
    """Creates the card with the models and what they are given; returns its components."""
    with gr.Column(elem_classes="card"):
        step_title(1, "Recording and model")
        with gr.Column(elem_id="visualise-speech") as speech:
            recording = recording_inputs(samples, "Recording", 6.875, "visualise")
        text = gr.Textbox(
            value="",
            label="Text",
            info="The message to the model, or its prompt.",
            lines=2,
            max_lines=8,
            visible=HIDDEN,
            elem_id="visualise-text",
        )
        model = gr.Dropdown([], label="Model", elem_id="visualise-model")
        compared_model = gr.Dropdown(
            [("nothing", NOTHING)],
            value=NOTHING,
            label="Compare with",
            info="Another model, runtime or quantisation. The tab then shows both, and their difference.",
            elem_id="visualise-beside",
        )
    return Sources(speech, recording, text, model, compared_model)


def views_card() -> gr.HTML:
    """Creates the card with the views; returns their list."""
    with gr.Column(elem_classes="card"):
        step_title(2, "View")
        return html_block("", "view", elem_id="visualise-views")


class Options(NamedTuple):
    """A card with options, which is hidden while there are none."""

    card: gr.Column | gr.Accordion
    inputs: list[gr.components.Component]


def view_options_card(options: Sequence[OptionField], registry: Registry) -> Options:
    """Creates the card with the options of the view; returns it with its inputs."""
    with gr.Column(elem_classes=visibility_classes(False, "card"), elem_id="visualise-options") as card:
        html_block("<h2>Options of the view <small>optional</small></h2>")
        return Options(card, list(make_inputs(options, registry, "visualise-option").values()))


def model_options_card(options: Sequence[OptionField], registry: Registry) -> Options:
    """Creates the card with the options of the models; returns it with its inputs."""
    with gr.Accordion(
        "Options of the models",
        open=False,
        elem_classes=visibility_classes(False, *ACCORDION),
        elem_id="visualise-model-options",
    ) as card:
        return Options(card, list(make_inputs(options, registry, "visualise-model").values()))
