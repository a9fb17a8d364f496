"""The Transcribe tab: layout and event wiring only. The event handlers are in `events`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gradio as gr

from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire, wire_script
from panels.transcribe.events import Actions
from panels.transcribe.inputs import Engine, Reference, engine_card, recording_card, reference_card
from panels.transcribe.job import RunState
from panels.transcribe.keeping import TAB
from panels.transcribe.kept_events import KeptRunActions
from panels.transcribe.live import live_files
from panels.transcribe.many import many_tools
from panels.transcribe.segment_editor import saver, segment_editor
from panels.transcribe.view import NOTHING_YET
from panels.widgets.early_presses import before_press, wire_in_turn
from panels.widgets.engine_inputs import SETTINGS
from panels.widgets.html_block import html_block
from panels.widgets.model_chooser import Models, models_card
from panels.widgets.option_inputs import options_card, shown_options
from panels.widgets.recording_inputs import RecordingInputs
from panels.widgets.run_history import follow_address, run_history
from panels.widgets.samples import read_samples
from panels.widgets.scrolling import show_results
from panels.widgets.tab_parts import start_and_cancel
from panels.widgets.timeline import timeline
from workbench.text.exports import FORMATS

SEGMENTS = (
    '<h4>Segments</h4><p class="muted small">Play a segment, or correct its text and times before export. You can also '
    "drag its borders on the timeline.</p>"
)
SHOW_RESULTS = show_results("results", "(recordings) => recordings && recordings.length")
SHOW_CLOSER = """() => {
  const closer = document.querySelector('#closer');
  closer.scrollIntoView({behavior: workbenchScrolling.behavior(), block: 'start'});
  closer.querySelector('h3').focus({preventScroll: true});
}"""
PRESS_RUN = "() => document.querySelector('#run').click()"


class Inputs(NamedTuple):
    """The left column, from top to bottom."""

    recording: RecordingInputs
    models: Models
    reference: Reference
    options: list[gr.components.Component]
    engine: Engine
    start: gr.Button
    cancel: gr.Button
    sample_text: gr.State  # the reference text that a sample brought

    @property
    def form(self) -> list[Any]:
        """The inputs of a run."""
        first_inputs = [self.recording.files, self.models.cells, self.reference.text, self.reference.normaliser]
        return [*first_inputs, *self.options, *self.engine.settings]


class Closer(NamedTuple):
    """The card with the segments of the row that is open."""

    card: gr.Column
    title: gr.HTML
    editor: gr.HTML
    exports: list[tuple[gr.Button, str]]  # each with its format
    revert: gr.Button
    download: gr.HTML


class Results(NamedTuple):
    """The right column, from top to bottom."""

    history: gr.HTML
    line: gr.HTML
    status: gr.HTML
    tools: gr.HTML
    table: gr.HTML
    closer: Closer
    state: gr.State
    opened: gr.State  # the row that is open
    edits: gr.State  # the edited segments of other rows

    @property
    def look_outputs(self) -> list[Any]:
        """The outputs of `Actions.look`."""
        closer = self.closer
        return [closer.card, closer.title, closer.editor, self.line, self.opened, self.edits]


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    options = shown_options(pool.registry, guard=pool.guard)
    samples = read_samples()
    actions = Actions(pool, page.timelines, samples, options)
    keeping = KeptRunActions(page.runs, pool, len(options) + len(SETTINGS))
    page.routes += live_files()
    state, opened, edits = gr.State(RunState()), gr.State(None), gr.State({})
    sample_text = gr.State("")

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=5, min_width=300, elem_classes="inputs"):
            inputs = Inputs(
                recording_card(samples),
                models_card(2, "Models", "models"),
                reference_card(),
                list(options_card(options, pool.registry).values()),
                engine_card(),
                *start_and_cancel("Transcribe", "run", "cancel"),
                sample_text,
            )
        with gr.Column(scale=8, min_width=300, elem_classes="results"):
            results = _results(page.runs.hours, state, opened, edits)

    fill = before_press(inputs.start)
    _wire_inputs(page, actions, inputs, fill)
    restored = _wire_runs(page, actions, keeping, inputs, results, fill)
    _wire_results(actions, inputs, results, restored)


def _results(hours: float, state: gr.State, opened: gr.State, edits: gr.State) -> Results:
    """Creates the right column; returns its components."""
    history = run_history(TAB, hours, elem_id="history")
    line = timeline("timeline")
    status = html_block("", elem_id="status")
    tools = many_tools(elem_id="many")
    table = html_block(NOTHING_YET, "look", "instead", elem_id="results")
    return Results(history, line, status, tools, table, _closer_card(), state, opened, edits)


def _closer_card() -> Closer:
    """Creates the card with the segments of a row; returns it with its components."""
    with gr.Column(visible=False, elem_id="closer", elem_classes="card") as card:
        title = html_block("")
        html_block(SEGMENTS)
        editor = segment_editor(elem_id="segments")
        with gr.Row(elem_classes="exports"):
            html_block('<span class="label">Export</span>')
            exports = [
                (gr.Button(form.extension, size="sm", min_width=56, elem_id=f"export-{name}"), name)
                for name, form in FORMATS.items()
            ]
            revert = gr.Button("Undo all edits", size="sm", variant="secondary", elem_id="revert")
        download = saver(elem_id="saver")
    return Closer(card, title, editor, exports, revert, download)


def _wire_inputs(page: Page, actions: Actions, inputs: Inputs, fill: Callable[..., Any]) -> None:
    """Wires the list of models, and the recordings."""
    cells, reference, sample_text = inputs.models.cells, inputs.reference.text, inputs.sample_text
    found = fill(page.load, actions.refresh, cells, [*inputs.models, inputs.engine.card])
    wire(found.success, actions.toggle_options, cells, inputs.options)
    wire(found.success, actions.open_ahead, cells, None)
    wire_script(found.success, follow_address(TAB))
    wire(cells.measure, actions.measure, cells, cells, trigger_mode="multiple")
    wire(cells.choose, actions.toggle_options, cells, inputs.options, trigger_mode="always_last")
    chips, files, credit, microphone = inputs.recording
    fill(chips.pick, actions.pick_sample, cells, [files, reference, credit, sample_text], in_turn=True)
    for event in (files.upload, files.clear):
        fill(event, actions.forget_sample, [reference, sample_text], [reference, credit, sample_text])
    fill(microphone.stop_recording, actions.add_recording, [microphone, files], [files, microphone])


def _wire_runs(
    page: Page,
    actions: Actions,
    keeping: KeptRunActions,
    inputs: Inputs,
    results: Results,
    fill: Callable[..., Any],
) -> Any:
    """Wires the run, and the runs that are kept; returns the event that shows one of them again."""
    files, cells, form = inputs.recording.files, inputs.models.cells, inputs.form
    table, status, state, line = results.table, results.status, results.state, results.line
    wire(files.change, actions.listen, [files, state, results.opened], line, trigger_mode="always_last")
    run_outputs = [table, status, inputs.start, inputs.cancel, state, line]
    ran = wire(inputs.start.click, actions.start, form, run_outputs, js=SHOW_RESULTS, **COMPUTING)
    _wire_first_look(ran, actions, inputs, results)
    wire(ran.then, actions.renew, cells, cells)
    wire(ran.success, keeping.keep, [state, *form], results.history)
    wire(ran.failure, keeping.mark_earlier, state, status)
    restored = [results.history, *form, table, status, state]
    restore_event = fill(results.history.restore, keeping.restore, cells, restored, in_turn=True)
    wire(inputs.cancel.click, actions.cancel, None, inputs.cancel, queue=False)
    page.unload(actions.leave)
    return restore_event


def _wire_first_look(event: Any, actions: Actions, inputs: Inputs, results: Results) -> None:
    """Wires what opens the first row after an event that fills the table."""
    inputs_of_look = [results.state, results.opened, results.closer.editor, inputs.recording.files]
    wire(event.success, actions.look_at_first, inputs_of_look, results.look_outputs)


def _wire_results(actions: Actions, inputs: Inputs, results: Results, restored: Any) -> None:
    """Wires the table, and the card with the segments of a row.

    Args:
        restored: the event that shows a kept run again.
    """
    cells, opened, closer = inputs.models.cells, results.opened, results.closer
    looking = [results.state, opened, closer.editor, results.edits, inputs.recording.files]
    chosen = wire(results.table.instead, actions.choose_instead, None, cells)
    wire_script(chosen.success, PRESS_RUN)
    looked = wire_in_turn(results.table.look, actions.look, looking, results.look_outputs)
    wire_script(looked.success, SHOW_CLOSER)
    _wire_first_look(restored, actions, inputs, results)
    wire(restored.success, actions.toggle_options, cells, inputs.options)
    wire_in_turn(results.line.open, actions.look, looking, results.look_outputs)
    for button, form in closer.exports:
        wire(button.click, partial(actions.save, form), [opened, closer.editor], closer.download)
    wire(results.tools.save, actions.save_all, results.state, closer.download)
    wire(closer.revert.click, actions.revert, opened, closer.editor)
