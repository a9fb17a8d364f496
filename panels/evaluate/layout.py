"""The Evaluate tab: layout and event wiring only. The event handlers are in `events`, the scripts in assets/."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from panels.evaluate.corpus import check_transcripts, check_upload
from panels.evaluate.events import EvaluateActions
from panels.evaluate.routes import evaluate_routes
from panels.evaluate.view import NOTHING_YET
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire, wire_script
from panels.transcribe.view import normaliser_label
from panels.widgets.early_presses import before_press
from panels.widgets.html_block import html_block, scripted_html
from panels.widgets.model_chooser import model_chooser
from panels.widgets.recording_actions import first_fault_html
from panels.widgets.scrolling import show_results
from panels.widgets.tab_parts import file_box, folded, start_and_cancel, step_title
from workbench.text.normalisers import NORMALISERS

CORPUS = """<p class="muted small">Upload a manifest (.csv, .tsv, .jsonl, .json, .list) with its recordings,
recordings with a text file for each, Parquet files of one split, or a .zip of any of these. Without files, the
evaluation uses the nine sample recordings.</p>"""
PROGRAMS = """<p class="muted small">One file for each program: sclite's .trn or .ctm, text of Kaldi or ESPnet, .csv,
.tsv or .jsonl. Its name becomes the name of the program. The ids or the names of the recordings must be those of the
corpus.</p>"""
PLACE = "The path of a manifest, a Kaldi or lhotse folder, or a folder of results, on the machine that runs this page."
SHOW_RESULTS = show_results("evaluate-results")
# Tabs that can take a recording: the tab, and the ids of its box for recordings and of its reference text.
TABS = {
    "transcribe": ("recordings", "reference"),
    "parity": ("parity-recording",),
    "visualise": ("visualise-recording",),
}


def open_tab(key: str) -> str:
    """Returns a script that opens the tab of that key."""
    return f'() => document.querySelector(\'#tabs button[role="tab"][data-tab-id="{key}"]\')?.click()'


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events, after the tabs that can take its recordings."""
    actions = EvaluateActions(pool)
    page.routes += evaluate_routes(actions.find)

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=4, min_width=300, elem_classes="inputs"):
            with gr.Column(elem_classes="card"):
                step_title(1, "Corpus")
                html_block(CORPUS)
                files = file_box("Manifest and recordings", "evaluate-files", several=True)
                fault = html_block("", elem_id="evaluate-files-fault", elem_classes="maybe")
                with folded("Or a path on this machine", visible=not pool.guard.public):
                    server_folder = gr.Textbox(
                        value="", label="Path", info=PLACE, max_lines=1, elem_id="evaluate-path", lines=1
                    )
                    opening = gr.Button("Open finished results", size="sm", elem_id="evaluate-open")
            with gr.Column(elem_classes="card"):
                step_title(2, "Models")
                cells = model_chooser(elem_id="evaluate-models")
                with folded("Add transcripts of other programs", elem_id="evaluate-programs"):
                    html_block(PROGRAMS)
                    transcripts = file_box("Files of transcripts", "evaluate-transcripts", several=True)
                    program_fault = html_block("", elem_id="evaluate-transcripts-fault", elem_classes="maybe")
            with gr.Column(elem_classes="card"):
                step_title(3, "Scoring")
                normaliser = gr.Dropdown(
                    [(normaliser_label(each), name) for name, each in NORMALISERS.items()],
                    value="basic",
                    label="Normaliser",
                    info="It changes the reference and the transcript before they are compared; the raw text is kept.",
                    elem_id="evaluate-normaliser",
                )
                limit = gr.Textbox(
                    value="",
                    label="Number of recordings",
                    info="Evaluates only the first recordings, up to this number; empty for all.",
                    max_lines=1,
                    elem_id="evaluate-limit",
                )
            start, cancel = start_and_cancel("Evaluate", "evaluate-run", "evaluate-cancel")

        with gr.Column(scale=9, min_width=300, elem_id="evaluate-results", elem_classes="results"):
            status = html_block("", elem_id="evaluate-status", elem_classes="status")
            report = scripted_html("evaluate.js", NOTHING_YET, elem_id="evaluate-report")

    before_press(start)(page.load, actions.refresh, cells, cells)
    wire(cells.measure, actions.measure, cells, cells, trigger_mode="multiple")
    wire(files.change, partial(first_fault_html, check_upload), files, fault, trigger_mode="always_last")
    checked = partial(first_fault_html, check_transcripts)
    wire(transcripts.change, checked, transcripts, program_fault, trigger_mode="always_last")
    run_outputs = [status, report, start, cancel]
    wire(
        start.click,
        actions.start,
        [files, server_folder, cells, transcripts, normaliser, limit],
        run_outputs,
        js=SHOW_RESULTS,
        **COMPUTING,
    )
    wire(cancel.click, actions.cancel, None, cancel, queue=False)
    wire(opening.click, actions.open, server_folder, [status, report], js=SHOW_RESULTS, **COMPUTING)
    for key, ids in TABS.items():
        boxes = [found for each in ids if (found := _component(page, each)) is not None]
        if not boxes:  # the page does not show this tab
            continue
        event = wire(getattr(report, key), actions.take if len(boxes) > 1 else actions.take_one, None, boxes)
        wire_script(event.success, open_tab(key))
    page.unload(actions.leave)


def _component(page: Page, elem_id: str) -> Any:
    """Returns the component of that id on a tab that was built before; None if the page lacks the tab."""
    return next((each for each in page.blocks.values() if getattr(each, "elem_id", None) == elem_id), None)
