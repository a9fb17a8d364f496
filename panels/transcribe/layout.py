"""The Transcribe tab: layout and event wiring only. The event handlers are in `events`."""

from __future__ import annotations

from functools import partial

import gradio as gr

from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire, wire_script
from panels.transcribe.events import Actions
from panels.transcribe.keeping import TAB
from panels.transcribe.kept_events import KeptRunActions
from panels.transcribe.live import live_files, live_microphone
from panels.transcribe.many import many_tools
from panels.transcribe.run import RunState
from panels.transcribe.segment_editor import saver, segment_editor
from panels.transcribe.view import NOTHING_YET, normaliser_label
from panels.widgets.early_presses import IN_TURN, before_press
from panels.widgets.engine_inputs import SHOWN, make_settings
from panels.widgets.html_block import HIDDEN, html_block
from panels.widgets.model_chooser import model_chooser
from panels.widgets.option_inputs import make_inputs, shown_options
from panels.widgets.recording_inputs import recording_inputs
from panels.widgets.run_history import follow_address, run_history
from panels.widgets.samples import read_samples
from panels.widgets.scrolling import show_results
from panels.widgets.tab_parts import folded, folded_card, start_and_cancel, step_title
from panels.widgets.timeline import timeline, timeline_beside
from workbench.text.exports import FORMATS
from workbench.text.normalisers import NORMALISERS

ENGINE = """<p class="muted small">The first run starts an engine, which takes up to a minute. All later runs with the
same settings use the same engine, also those of other visitors.</p>"""
SHOW_RESULTS = show_results("results", "(recordings) => recordings && recordings.length")
SHOW_CLOSER = """() => {
  const closer = document.querySelector('#closer');
  closer.scrollIntoView({behavior: 'smooth', block: 'start'});
  closer.querySelector('h3').focus({preventScroll: true});
}"""
PRESS_RUN = "() => document.querySelector('#run').click()"


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    options = shown_options(pool.registry)
    samples = read_samples()
    actions = Actions(pool, page.timelines, samples, options)
    keeping = KeptRunActions(page.runs, pool, len(options) + len(SHOWN))
    page.routes += live_files()
    state, opened, edits = gr.State(RunState()), gr.State(None), gr.State({})
    sample_text = gr.State("")  # the reference text that a sample brought

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=5, min_width=300, elem_classes="inputs"):
            with gr.Column(elem_classes="card"):
                step_title(1, "Recording")
                sample_chips, files, credit, microphone = recording_inputs(
                    samples, "Recordings to transcribe", 150, several=True
                )
                timeline_beside("timeline")
                with folded("Live: write while you speak"):
                    live_microphone()
            with gr.Column(elem_classes="card"):
                step_title(2, "Models")
                cells = model_chooser(elem_id="models")
                unavailable = html_block("", elem_classes="maybe")
            with gr.Column(elem_classes="card"):
                step_title(3, "Reference", optional=True)
                reference = gr.Textbox(
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
            with folded_card("Options of the models"):
                inputs = make_inputs(options, pool.registry)
            with folded_card("vLLM engine", visible=HIDDEN, elem_id="engine") as engine:
                html_block(ENGINE)
                settings = make_settings()
            start, cancel = start_and_cancel("Transcribe", "run", "cancel")

        with gr.Column(scale=8, min_width=300, elem_classes="results"):
            history = run_history(TAB, page.runs.hours, elem_id="history")
            line = timeline("timeline")
            status = html_block("", elem_id="status")
            tools = many_tools(elem_id="many")
            table = html_block(NOTHING_YET, "look", "instead", elem_id="results")
            with gr.Column(visible=False, elem_id="closer", elem_classes="card") as closer:
                title = html_block("")
                html_block(
                    '<h4>Segments</h4><p class="muted small">Play a segment, or correct its text and times before '
                    "export. You can also drag its borders on the timeline.</p>"
                )
                editor = segment_editor(elem_id="segments")
                with gr.Row(elem_classes="exports"):
                    html_block('<span class="label">Export</span>')
                    exports = [
                        (gr.Button(form.extension, size="sm", min_width=56, elem_id=f"export-{name}"), name)
                        for name, form in FORMATS.items()
                    ]
                    revert = gr.Button("Undo all edits", size="sm", variant="secondary", elem_id="revert")
                download = saver(elem_id="saver")

    fill = before_press(start)
    found = fill(page.load, actions.refresh, cells, [cells, unavailable, engine])
    wire(found.success, actions.toggle_options, cells, list(inputs.values()))
    wire(found.success, actions.open_ahead, cells, None)
    wire_script(found.success, follow_address(TAB))
    wire(cells.measure, actions.measure, cells, cells, trigger_mode="multiple")
    wire(cells.choose, actions.toggle_options, cells, list(inputs.values()), trigger_mode="always_last")
    fill(sample_chips.pick, actions.pick_sample, cells, [files, reference, credit, sample_text], **IN_TURN)
    for event in (files.upload, files.clear):
        fill(event, actions.forget_sample, [reference, sample_text], [reference, credit, sample_text])
    fill(microphone.stop_recording, actions.add_recording, [microphone, files], [files, microphone])

    shown = [closer, title, editor, line, opened, edits]
    taken = [files, cells, reference, normaliser, *inputs.values(), *settings]
    wire(files.change, actions.listen, [files, state, opened], line, trigger_mode="always_last")
    ran = wire(
        start.click, actions.start, taken, [table, status, start, cancel, state, line], js=SHOW_RESULTS, **COMPUTING
    )
    wire(ran.success, actions.look_at_first, [state, opened, editor, files], shown)
    wire(ran.then, actions.renew, cells, cells)
    wire(ran.success, keeping.keep, [state, *taken], history)
    wire(ran.failure, keeping.mark_earlier, state, status)
    restored = [history, files, cells, reference, normaliser, *inputs.values(), *settings, table, status, state]
    back = fill(history.restore, keeping.restore, cells, restored, **IN_TURN)
    wire(cancel.click, actions.cancel, None, cancel, queue=False)
    page.unload(actions.leave)

    other = wire(table.instead, actions.choose_instead, None, cells)
    wire_script(other.success, PRESS_RUN)
    looked = wire(table.look, actions.look, [state, opened, editor, edits, files], shown, **IN_TURN)
    wire_script(looked.success, SHOW_CLOSER)
    wire(back.success, actions.look_at_first, [state, opened, editor, files], shown)
    wire(back.success, actions.toggle_options, cells, list(inputs.values()))
    wire(line.open, actions.look, [state, opened, editor, edits, files], shown, **IN_TURN)
    for button, form in exports:
        wire(button.click, partial(actions.save, form), [opened, editor], download)
    wire(tools.save, actions.save_all, state, download)
    wire(revert.click, actions.revert, opened, editor)
