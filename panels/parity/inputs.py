"""The inputs of the Parity tab, card by card: each function creates one and returns its components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gradio as gr

from panels.parity.events import BARE, PROMPT_INFO
from panels.parity.form import END_TO_END, MODES
from panels.parity.several import RECORDINGS
from panels.parity.view import precision_choices, preset_choices
from panels.widgets.html_block import html_block, scripted_html, visibility_classes
from panels.widgets.recording_inputs import RecordingInputs, recording_inputs
from panels.widgets.samples import Sample
from panels.widgets.tab_parts import file_box, folded, folded_card, step_title
from workbench.compare.precision import AUTO
from workbench.compare.presets import MEASURES
from workbench.core.settings import KV_CACHES

FILES = """<p class="muted small">Arrays that another program computed for the same input. A mapping file says which
array is which stage; arrays that it does not name keep their names. A GGUF file of the model runs as a candidate, and
its weights are compared with the checkpoint's.</p>"""
SEVERAL_INPUTS = """<p class="muted small">These files replace the single input. Rounding can hide a small fault on each
input; over several inputs, it becomes visible.</p>"""
EXPERIMENTING = """<p class="muted small">Try a known cause of a divergence. Each switch adds an option to the
reference or to the candidates above, where you can edit it.</p>"""


class ModelAndInput(NamedTuple):
    """The first card. What a model does not take is hidden: `speech`, `text`, `merged` or `several_inputs`."""

    model: gr.Dropdown
    note: gr.HTML
    speech: gr.Column
    recording: RecordingInputs
    text: gr.Column
    prompt: gr.Textbox
    merged: gr.Accordion
    embeddings: gr.File
    several_inputs: gr.Accordion
    several: gr.File


def model_and_input(models: list[tuple[str, str]], samples: Sequence[Sample]) -> ModelAndInput:
    """Creates the card with the model and what it is given."""
    with gr.Column(elem_classes="card"):
        step_title(1, "Model and input")
        model = gr.Dropdown(models, value=models[0][1] if models else None, label="Model", elem_id="parity-model")
        note = html_block("", elem_id="parity-note")
        with gr.Column(elem_id="parity-speech", elem_classes=BARE) as speech:
            recording = recording_inputs(samples, "Recording", 8.125, "parity")
        with gr.Column(elem_classes=visibility_classes(False, BARE)) as text:
            prompt = gr.Textbox(
                value="", label="Prompt", info=PROMPT_INFO, lines=3, max_lines=12, elem_id="parity-prompt"
            )
            with folded("Embeddings in the prompt, in order") as merged:
                embeddings = file_box(".npy, .npz, .pt or .safetensors", "parity-embeddings", several=True)
        with folded("Several inputs, one verdict", elem_id="parity-several-inputs") as several_inputs:
            html_block(SEVERAL_INPUTS)
            several = file_box(RECORDINGS, "parity-several", several=True)
    return ModelAndInput(model, note, speech, recording, text, prompt, merged, embeddings, several_inputs, several)


class Sides(NamedTuple):
    """The second card. `buttons` write into `candidates`."""

    reference: gr.Dropdown
    buttons: gr.HTML
    candidates: gr.Textbox
    mode: gr.Radio


def sides_card() -> Sides:
    """Creates the card with the reference and the candidates."""
    with gr.Column(elem_classes="card"):
        step_title(2, "What is compared")
        reference = gr.Dropdown(
            [], label="Reference", allow_custom_value=True, elem_id="parity-reference", filterable=True
        )
        html_block('<p class="field">Candidates</p>')
        buttons = scripted_html("sides.js", elem_id="parity-sides")
        candidates = gr.Textbox(
            value="",
            label="Candidates as text",
            info="One per line: runtime:type. +name=value adds a setting or an option of one candidate.",
            lines=2,
            max_lines=8,
            elem_id="parity-candidates",
        )
        mode = gr.Radio(MODES, value=END_TO_END, label="Mode", elem_id="parity-mode")
    return Sides(reference, buttons, candidates, mode)


class OtherPrograms(NamedTuple):
    """The card for the files of other programs."""

    uploads: gr.File
    mapping: gr.File
    precision: gr.Dropdown
    force: gr.Checkbox


def other_programs() -> OtherPrograms:
    """Creates the card for the files of other programs."""
    with folded_card("Files of other programs", elem_id="parity-files"):
        html_block(FILES)
        return OtherPrograms(
            file_box(".safetensors, .npz, .zip of .npy, .gguf", "parity-uploads", several=True),
            file_box("Mapping file: .toml or .json", "parity-mapping"),
            gr.Dropdown(
                precision_choices(), value=AUTO, label="Precision of the other program", elem_id="parity-precision"
            ),
            gr.Checkbox(label="Compare even traces of different inputs or models", elem_id="parity-force"),
        )


class Experiments(NamedTuple):
    """The switches of one side, in the order of `panels.parity.events.EXPERIMENTS`."""

    cmvn: gr.Checkbox
    dither: gr.Checkbox
    threads: gr.Textbox
    kv_cache: gr.Dropdown


def experiments_card() -> tuple[Experiments, Experiments]:
    """Creates the card with known causes of a divergence; returns the switches of reference and candidates."""
    with folded_card("Experiments", elem_id="parity-experiments"):
        html_block(EXPERIMENTING)
        with gr.Row(elem_classes="pair"):
            return _experiments("Reference"), _experiments("Candidates")


def _experiments(title: str) -> Experiments:
    name = title.lower()
    with gr.Column(min_width=130):
        html_block(f'<p class="field">{title}</p>')
        return Experiments(
            gr.Checkbox(label="No CMVN", elem_id=f"parity-{name}-cmvn"),
            gr.Checkbox(label="Dither", elem_id=f"parity-{name}-dither"),
            gr.Textbox(value="", label="Threads", placeholder="default", max_lines=1, elem_id=f"parity-{name}-threads"),
            gr.Dropdown(
                [("f32 (default)", ""), *((each, each) for each in KV_CACHES if each != "f32")],
                value="",
                label="KV cache",
                elem_id=f"parity-{name}-kv",
            ),
        )


class Tolerance(NamedTuple):
    """The card with the stages and the limits of their errors."""

    stages: gr.Textbox
    steps: gr.Textbox
    preset: gr.Dropdown
    rules: gr.Textbox
    exact: gr.Checkbox


def tolerance_card() -> Tolerance:
    """Creates the card with the stages and the limits of their errors."""
    with folded_card("Stages and tolerance", elem_id="parity-tolerance"):
        stages = gr.Textbox(
            value="*",
            label="Stages",
            info="A pattern such as encoder.*; several patterns are separated by commas.",
            max_lines=1,
            elem_id="parity-stages",
        )
        steps = gr.Textbox(
            value="",
            label="Decoding steps",
            info="For models that write token by token: first, all, or numbers such as 1,5,20.",
            placeholder="none: only the pass over the prompt",
            max_lines=1,
            elem_id="parity-steps",
        )
        preset = gr.Dropdown(preset_choices(), value="", label="Tolerance", elem_id="parity-preset")
        rules = gr.Textbox(
            value="",
            label="Your own limits",
            info=f"One per line: MEASURE=LIMIT or STAGES:MEASURE=LIMIT. Measures: {', '.join(MEASURES)}.",
            lines=2,
            placeholder="encoder.*:relative_l2=1e-3",
            elem_id="parity-rules",
        )
        exact = gr.Checkbox(
            value=True,
            label="Tell noise from a bug",
            info="Computes the reference in float64 too.",
            elem_id="parity-exact",
        )
    return Tolerance(stages, steps, preset, rules, exact)
