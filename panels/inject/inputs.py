"""The inputs of the Inject tab, card by card: each function creates one and returns its components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gradio as gr

from panels.inject.embedding_view import EMPTY
from panels.widgets.html_block import html_block, visibility_classes
from panels.widgets.recording_inputs import samples_html
from panels.widgets.samples import Sample
from panels.widgets.tab_parts import file_box, folded, step_title
from workbench.families.language.directory import PLACEHOLDER


class Embeddings(NamedTuple):
    """The first card: the embeddings, made from a recording or read from files."""

    samples: gr.HTML
    recording: gr.Audio
    fault: gr.HTML  # why the recording cannot be read
    speech: gr.Dropdown
    make: gr.Button
    listed: gr.HTML
    files: gr.File
    which: gr.Row  # the next three, shown for a file with several arrays
    tensors: gr.Dropdown
    take: gr.Button
    leave_out: gr.Button


def embeddings_card(samples: Sequence[Sample], speech_models: list[tuple[str, str]]) -> Embeddings:
    """Creates the card with the embeddings; returns its components."""
    with gr.Column(elem_classes="card"):
        step_title(1, "Embeddings")
        chips = html_block(samples_html(samples, several=False), "pick", elem_id="inject-samples")
        recording = gr.Audio(
            sources=["microphone", "upload"],
            type="filepath",
            label="Recording",
            buttons=["download"],  # no button that sends the recording elsewhere
            elem_id="inject-recording",
        )
        fault = html_block("", elem_id="inject-recording-fault", elem_classes="maybe")
        speech = gr.Dropdown(
            speech_models,
            label="Speech model",
            info="The output of its adaptor goes into the prompt of its language model.",
            elem_id="speech-model",
        )
        make = gr.Button("Add embeddings of the recording", size="sm", elem_id="make-embeddings")
        listed = html_block(EMPTY, "look", "earlier", "remove", "save", elem_id="embeddings")
        with folded("Add embedding files"):
            files = file_box(".npy, .npz, .pt or .safetensors", "embedding-files", several=True)
            with gr.Row(elem_id="which-tensor", elem_classes=visibility_classes(False)) as which:
                tensors = gr.Dropdown([], multiselect=True, label="Arrays", elem_id="tensor")
                take = gr.Button("Add", size="sm", min_width=90, elem_id="take-tensor")
                leave_out = gr.Button("Skip", size="sm", min_width=90, elem_id="leave-out-tensor")
    return Embeddings(chips, recording, fault, speech, make, listed, files, which, tensors, take, leave_out)


class Prompt(NamedTuple):
    """The card with the prompt. `insert` writes a placeholder into `text`."""

    text: gr.Textbox
    insert: gr.Button


def prompt_card() -> Prompt:
    """Creates the card with the prompt; returns its components."""
    with gr.Column(elem_classes="card"):
        step_title(2, "Prompt")
        text = gr.Textbox(
            label="Prompt",
            info=f"Each {PLACEHOLDER} is replaced by an embedding, in the order of the list above.",
            lines=4,
            max_lines=16,
            elem_id="inject-prompt",
        )
        insert = gr.Button("Insert a placeholder", size="sm", elem_id="insert-placeholder")
    return Prompt(text, insert)
