"""The inputs of the Decode tab, card by card: each function creates one and returns its components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gradio as gr

from panels.decode.knowledge import FILES
from panels.decode.run import TITLES
from panels.running.sessions import SessionPool
from panels.widgets.html_block import html_block
from panels.widgets.option_inputs import OptionField, make_inputs
from panels.widgets.recording_inputs import RecordingInputs, recording_inputs
from panels.widgets.samples import Sample
from panels.widgets.tab_parts import file_box, folded, folded_card, step_title

HOW_WRITTEN = """<p class="muted small">A language model is an ARPA file (it may be gzipped) or a KenLM binary. Each
line of a lexicon has a word, a tab, and the tokens of the word; <code>word(2)</code> is another pronunciation. Each
line of the phrases file is one phrase: words if there is a lexicon, otherwise tokens separated by spaces.</p>"""
LOGITS = """<p class="muted small">Logits that another program computed: one array [frames, tokens] in each file, and
the list of the tokens, one per line.</p>"""
PAIRS_OF_FILES = (("lm", "boost"), ("lexicon", "word_lm"))  # boxes that stand beside each other


class Sources(NamedTuple):
    """The first card: what is decoded. Files of logits, with their tokens, replace recordings and model."""

    recording: RecordingInputs
    model: gr.Dropdown
    logits: gr.File
    tokens: gr.File
    blank: gr.Textbox
    reference: gr.Textbox


def sources_card(samples: Sequence[Sample]) -> Sources:
    """Creates the card with what is decoded; returns its inputs."""
    with gr.Column(elem_classes="card"):
        step_title(1, "Recordings and model")
        recording = recording_inputs(samples, "Recordings", 8.125, "decode", several=True)
        model = gr.Dropdown([], label="Model with a CTC head", elem_id="decode-model")
        with folded("Or files of logits", elem_id="decode-files"):
            html_block(LOGITS)
            logits = file_box("Logits: .npy, .npz, .safetensors", "decode-logits", several=True)
            tokens = file_box("Token list: .txt or .json", "decode-tokens")
            blank = gr.Textbox(
                label="Blank",
                info="The index of the blank token, counted from 0, or its name. If empty, the tokens' names decide.",
                max_lines=1,
                elem_id="decode-blank",
            )
        reference = gr.Textbox(
            label="Reference text",
            info="The words that are spoken. For several recordings, one line each.",
            lines=1,
            max_lines=8,
            elem_id="decode-reference",
        )
    return Sources(recording, model, logits, tokens, blank, reference)


class Knowledge(NamedTuple):
    """The second card: what the search may know. The files and notes are in the order of `FILES`."""

    examples: gr.HTML
    files: dict[str, gr.File]  # by option
    notes: dict[str, gr.HTML]  # what was found in each file, by option
    neural: gr.Dropdown


def knowledge_card(examples: str) -> Knowledge:
    """Creates the card with language models, lexicon and phrases; returns its inputs.

    Args:
        examples: the examples as HTML.
    """
    with gr.Column(elem_classes="card"):
        step_title(2, "Language models, lexicon, phrases", optional=True)
        picked = html_block(examples, "pick", elem_id="decode-examples")
        files, notes = {}, {}
        for pair in PAIRS_OF_FILES:
            with gr.Row(elem_classes="pair"):
                for option in pair:
                    files[option] = _knowledge_file(option)
            for option in pair:
                notes[option] = html_block("", elem_id=f"{_id_of(option)}-note", elem_classes="checked")
        html_block(HOW_WRITTEN)
        neural = gr.Dropdown(
            [("none", "")],
            value="",
            label="Neural language model of the words",
            info="It reads the text of the lexicon's words.",
            elem_id="decode-neural",
        )
    return Knowledge(
        picked, {option: files[option] for option in FILES}, {option: notes[option] for option in FILES}, neural
    )


def _knowledge_file(option: str) -> gr.File:
    return gr.File(
        label=FILES[option],
        height="6rem",
        min_width=130,
        elem_id=_id_of(option),
        elem_classes=["boxed", "small-box"],
    )


def _id_of(option: str) -> str:
    return f"decode-{option.replace('_', '-')}"


class Search(NamedTuple):
    """The card with the decoders and the options of the search."""

    decoders: gr.CheckboxGroup
    options: dict[str, gr.components.Component]


def search_card(options: Sequence[OptionField], pool: SessionPool) -> Search:
    """Creates the card with the decoders and the options of the search; returns its inputs."""
    with folded_card("Search and weights", elem_id="decode-search-options"):
        decoders = gr.CheckboxGroup(
            [(title, name) for name, title in TITLES.items()],
            value=list(TITLES),
            label="Decoders to compare",
            elem_id="decode-decoders",
        )
        return Search(decoders, make_inputs(options, pool.registry, "decode-option"))
