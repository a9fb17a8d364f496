"""The Parity tab: layout and event wiring only. The event handlers are in `events`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gradio as gr

from panels.parity.breaking import BreakingActions
from panels.parity.breaking_layout import Breaking, breaking_card, wire_breaking
from panels.parity.events import EXPERIMENTS, EXPORTS, ParityActions
from panels.parity.example import example_html
from panels.parity.form import FILES, Form
from panels.parity.inputs import (
    Experiments,
    ModelAndInput,
    OtherPrograms,
    Sides,
    Tolerance,
    experiments_card,
    model_and_input,
    other_programs,
    sides_card,
    tolerance_card,
)
from panels.parity.view import NOTHING_YET
from panels.running.kept_views import KeptViews, note_beside
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire, wire_script, wire_value
from panels.transcribe.segment_editor import saver
from panels.widgets.early_presses import before_press, wire_in_turn
from panels.widgets.html_block import html_block, scripted_html, visibility_classes
from panels.widgets.recording_actions import unreadable_html
from panels.widgets.run_history import follow_address, run_history
from panels.widgets.samples import read_samples
from panels.widgets.scrolling import show_results
from panels.widgets.tab_parts import start_and_cancel

SHOW_RESULTS = show_results(
    "parity-results",
    """(...values) => {
  const [, recording, prompt, , , candidates, uploads] = values;
  const given = recording || prompt || [uploads, values.at(-1)].some((each) => each && each.length);
  return given && (candidates || '').trim();
}""",
)
# Scrolls until the pictures are visible, but not past the heat map.
SHOW_CLOSER = """() => {
  const below = document.querySelector('#parity-closer').getBoundingClientRect().top - innerHeight * 0.55;
  if (below > 0) scrollBy({top: below, behavior: workbenchScrolling.behavior()});
}"""
# The browser handles a press itself, so that two fast presses both count.
TOGGLE = """(written) => {
  const side = document.querySelector('#parity-sides[data-pressed], #parity-sides [data-pressed]').dataset.pressed;
  const lines = (written || '').split('\\n').map((each) => each.trim()).filter(Boolean);
  const others = lines.filter((each) => each !== side && each.split('+')[0] !== side);
  return (others.length < lines.length ? others : [...lines, side]).join('\\n');
}"""
MARK = """(written) => {
  const lines = (written || '').split('\\n').map((each) => each.trim());
  const there = new Set([...lines, ...lines.map((each) => each.split('+')[0])]);
  for (const each of document.querySelectorAll('#parity-sides [data-side]')) {
    each.setAttribute('aria-pressed', there.has(each.dataset.side));
  }
}"""
WRITING = '<span class="muted small" role="status">Writing the report…</span>'

TAB = "parity"


class Inputs(NamedTuple):
    """The left column, from top to bottom."""

    model_inputs: ModelAndInput
    sides: Sides
    files: OtherPrograms
    experiments: tuple[Experiments, Experiments]  # switches of the reference, and of the candidates
    tolerance: Tolerance
    breaking: Breaking
    start: gr.Button
    cancel: gr.Button
    known_uploads: gr.State  # the names of the uploaded files

    @property
    def sides_as_text(self) -> list[Any]:
        """The two inputs that name sides."""
        return [self.sides.reference, self.sides.candidates]

    @property
    def chosen(self) -> list[Any]:
        """The inputs of `ParityActions.choose`."""
        return [self.model_inputs.model, *self.sides_as_text, self.files.uploads]

    @property
    def offered(self) -> list[Any]:
        """The outputs of `ParityActions.choose`."""
        model_inputs, sides = self.model_inputs, self.sides
        speech_switches = [each for side in self.experiments for each in (side.cmvn, side.dither)]
        language_switches = [side.kv_cache for side in self.experiments]
        model_outputs = [
            model_inputs.speech,
            model_inputs.text,
            model_inputs.merged,
            model_inputs.prompt,
            model_inputs.several_inputs,
            model_inputs.several,
        ]
        upload_outputs = [self.files.precision, self.known_uploads]
        side_outputs = [sides.reference, sides.buttons, sides.candidates]
        return [model_inputs.note, *side_outputs, *model_outputs, *speech_switches, *language_switches, *upload_outputs]

    @property
    def form(self) -> Form:
        """The inputs of a run."""
        model_inputs, sides, files, tolerance = self.model_inputs, self.sides, self.files, self.tolerance
        return Form(
            model=model_inputs.model,
            recording=model_inputs.recording.files,
            prompt=model_inputs.prompt,
            embeddings=model_inputs.embeddings,
            reference=sides.reference,
            candidates=sides.candidates,
            uploads=files.uploads,
            mapping=files.mapping,
            mode=sides.mode,
            stages=tolerance.stages,
            preset=tolerance.preset,
            rules=tolerance.rules,
            exact=tolerance.exact,
            force=files.force,
            steps=tolerance.steps,
            precision=files.precision,
            several=model_inputs.several,
        )


class Results(NamedTuple):
    """The right column, from top to bottom."""

    history: gr.HTML
    earlier: gr.HTML
    status: gr.HTML
    verdicts: gr.HTML
    exports: gr.Row
    as_page: gr.Button
    as_json: gr.Button
    writing: gr.HTML
    closer: gr.HTML  # the stage that is open
    download: gr.HTML
    opened: gr.State  # the same stage as a candidate's index and the stage's name

    @property
    def stored_outputs(self) -> list[Any]:
        """The outputs whose HTML is stored with a run."""
        return [self.verdicts, self.status, self.closer]


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    samples = read_samples()
    actions = ParityActions(pool, samples)
    opened_stage, known_names = gr.State(None), gr.State(())

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=5, min_width=300, elem_classes="inputs"):
            inputs = Inputs(
                model_and_input(actions.models(), samples),
                sides_card(),
                other_programs(),
                experiments_card(),
                tolerance_card(),
                breaking_card(),
                *start_and_cancel("Compare", "parity-run", "parity-cancel"),
                known_names,
            )
        with gr.Column(scale=8, min_width=300, elem_id="parity-results", elem_classes="results"):
            results = _results(page.runs.hours, opened_stage)

    fill = before_press(inputs.start, inputs.breaking.plant, inputs.breaking.hide)
    _wire_inputs(page, actions, inputs, fill)
    _wire_runs(page, actions, inputs, results, fill)
    _wire_results(actions, results)


def _results(hours: float, opened_stage: gr.State) -> Results:
    history = run_history(TAB, hours, elem_id="parity-history")
    earlier = html_block("", elem_id="parity-earlier", elem_classes="maybe")
    status = html_block("", elem_id="parity-status", elem_classes="status")
    verdicts = scripted_html("heat.js", example_html() or NOTHING_YET, elem_id="parity-result")
    with gr.Row(elem_classes=visibility_classes(False, EXPORTS), elem_id="parity-exports") as exports:
        html_block('<span class="label">Report</span>')
        as_page = gr.Button("HTML", size="sm", min_width=56, elem_id="parity-html")
        as_json = gr.Button("JSON", size="sm", min_width=56, elem_id="parity-json")
        writing = html_block("", elem_id="parity-writing")
    closer = html_block("", "look", elem_id="parity-closer")
    download = saver(elem_id="parity-saver", elem_classes="saver")
    return Results(
        history, earlier, status, verdicts, exports, as_page, as_json, writing, closer, download, opened_stage
    )


def _wire_inputs(page: Page, actions: ParityActions, inputs: Inputs, fill: Callable[..., Any]) -> None:
    model_inputs, sides, files, known = inputs.model_inputs, inputs.sides, inputs.files, inputs.known_uploads
    ready = fill(page.load, actions.choose, inputs.chosen, inputs.offered)
    wire_script(ready.success, follow_address(TAB))
    fill(model_inputs.model.input, actions.choose, inputs.chosen, inputs.offered)
    pressed = wire_script(sides.buttons.toggle, TOGGLE, sides.candidates, sides.candidates)
    wire(pressed.then, actions.experiments, [sides.candidates, *inputs.experiments[1]], sides.candidates)
    wire_script(sides.candidates.change, MARK, sides.candidates)
    for sides_text, switches in zip(inputs.sides_as_text, inputs.experiments):
        for name, each in zip(EXPERIMENTS, switches):
            event = each.input  # type: ignore[attr-defined]
            wire(event, partial(actions.experiment, name), [sides_text, each], sides_text, trigger_mode="always_last")
    for event in (files.uploads.upload, files.uploads.clear, files.uploads.delete):
        outputs = [sides.reference, sides.candidates, sides.buttons, known, files.precision]
        fill(event, actions.add_uploads, [*inputs.chosen, known, files.precision], outputs)
    samples, recording, credit, microphone = model_inputs.recording
    fill(samples.pick, actions.pick_sample, None, [recording, credit], in_turn=True)
    for event in (recording.upload, recording.clear):
        wire(event, unreadable_html, recording, credit)
    fill(microphone.stop_recording, actions.add_recording, microphone, [recording, microphone])


def _wire_runs(page: Page, actions: ParityActions, inputs: Inputs, results: Results, fill: Callable[..., Any]) -> None:
    form, opened, verdicts, status = inputs.form, results.opened, results.verdicts, results.status
    run_outputs = [verdicts, status, inputs.start, inputs.cancel, results.exports, opened]
    comparing = wire(inputs.start.click, actions.start, [*form], run_outputs, js=SHOW_RESULTS, **COMPUTING)

    def look(event: Any) -> Any:
        return wire(event.success, actions.look_at_first, opened, [results.closer, opened])

    wire(comparing.failure, partial(note_beside, verdicts.value), verdicts, status)
    looked_at = look(comparing)  # the open stage is kept with the run
    outputs = results.stored_outputs
    views = KeptViews(page.runs, page.sent.of(outputs), TAB, len(form), len(outputs), FILES)

    def keep(request: gr.Request, *values: Any) -> Any:
        return actions.keep(views, str(request.session_hash), values)

    wire(looked_at.success, keep, [*form, *outputs], results.history)
    wire_value(inputs.start.click, "", results.earlier)
    restored = [results.history, *form, *outputs, results.earlier]
    restoring = fill(results.history.restore, views.restore, None, restored, in_turn=True)
    wire(restoring.success, actions.choose, inputs.chosen, inputs.offered)
    breaking = BreakingActions(actions)
    wire_breaking(inputs.breaking, breaking, inputs.model_inputs.recording.files, run_outputs, results.closer, look)
    page.unload(breaking.leave)
    wire(inputs.cancel.click, actions.cancel, None, inputs.cancel, queue=False)
    page.unload(actions.leave)


def _wire_results(actions: ParityActions, results: Results) -> None:
    opened = results.opened
    for source in (results.verdicts, results.closer):
        opening = wire_in_turn(source.look, actions.look, opened, [results.closer, opened])
        if source is results.verdicts:
            wire_script(opening.success, SHOW_CLOSER)
    for press, save in ((results.as_page, actions.save_page), (results.as_json, actions.save_json)):
        wire_value(press.click, WRITING, results.writing)
        saving = wire(press.click, save, None, results.download)
        wire(saving.then, lambda: "", None, results.writing)
