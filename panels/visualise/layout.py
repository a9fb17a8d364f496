"""The Visualise tab: layout and event wiring only. The event handlers are in `events`, the scripts in assets/."""

from __future__ import annotations

from typing import Any, NamedTuple

import gradio as gr

from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire
from panels.visualise.events import FIRST_VIEW, VisualiseActions
from panels.visualise.inputs import Options, Sources, model_options_card, sources_card, view_options_card, views_card
from panels.visualise.own_recordings import OwnRecordings
from panels.visualise.routes import visualise_routes
from panels.visualise.view import NOTHING_YET
from panels.widgets.early_presses import before_press
from panels.widgets.html_block import html_block
from panels.widgets.samples import read_samples
from panels.widgets.scrolling import show_results
from panels.widgets.tab_parts import start_and_cancel
from workbench.registry.sources import assets

SHOW_RESULTS = show_results("visualise-results", "(recording, _, text) => recording || text")


class Inputs(NamedTuple):
    """The left column, from top to bottom."""

    sources: Sources
    views: gr.HTML
    of_view: Options
    of_models: Options
    start: gr.Button
    cancel: gr.Button
    view: gr.State
    sample_name: gr.State  # the name of the sample that is the recording

    @property
    def models(self) -> list[Any]:
        """The inputs that name models."""
        return [self.sources.model, self.sources.compared_model]

    @property
    def picked(self) -> list[Any]:
        """The outputs of `VisualiseActions.pick_sample`."""
        return [self.sources.recording.files, self.sources.recording.credit, self.sample_name]

    @property
    def options(self) -> list[Any]:
        """The inputs for options, of the view and of the models."""
        return [*self.of_view.inputs, *self.of_models.inputs]

    @property
    def offered(self) -> list[Any]:
        """The outputs of `VisualiseActions.choose`."""
        view_outputs = [self.view, self.views, self.sources.speech, self.sources.text]
        return [*view_outputs, self.of_view.card, *self.of_view.inputs, self.of_models.card, *self.of_models.inputs]

    @property
    def form(self) -> list[Any]:
        """The inputs of a run."""
        sources = self.sources
        return [sources.recording.files, self.sample_name, sources.text, *self.models, self.view, *self.options]


class Results(NamedTuple):
    """The right column, from top to bottom."""

    status: gr.HTML
    stage: gr.HTML


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    samples = read_samples()
    actions = VisualiseActions(pool, samples, OwnRecordings(page.runs))
    page.routes += visualise_routes(actions.find)
    view, sample_name = gr.State(FIRST_VIEW), gr.State("")

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=4, min_width=300, elem_classes="inputs"):
            inputs = Inputs(
                sources_card(samples),
                views_card(),
                view_options_card(actions.options, pool.registry),
                model_options_card(actions.model_options, pool.registry),
                *start_and_cancel("Show", "visualise-run", "visualise-cancel"),
                view,
                sample_name,
            )
        with gr.Column(scale=9, min_width=300, elem_id="visualise-results", elem_classes="results"):
            results = _results()

    _wire_inputs(page, actions, inputs)
    _wire_runs(actions, inputs, results)
    page.unload(actions.leave)


def _results() -> Results:
    """Creates the right column; returns its components."""
    status = html_block("", elem_id="visualise-status", elem_classes="status")
    stage = gr.HTML(
        None,
        html_template=f'<div class="stage">{NOTHING_YET}</div>',
        js_on_load=(assets() / "visualise" / "start.js").read_text(encoding="utf-8"),
        apply_default_css=False,
        elem_id="visualise-stage",
    )
    return Results(status, stage)


def _wire_inputs(page: Page, actions: VisualiseActions, inputs: Inputs) -> None:
    """Wires the models and the recording."""
    fill = before_press(inputs.start)
    chosen = [*inputs.models, inputs.view]
    fill(page.load, actions.refresh, chosen, [*inputs.models, *inputs.offered])
    for event in (inputs.sources.model.input, inputs.sources.compared_model.input):
        fill(event, actions.choose, chosen, inputs.offered, trigger_mode="always_last")
    chips, recording, credit, microphone = inputs.sources.recording
    fill(chips.pick, actions.pick_sample, None, inputs.picked, in_turn=True)
    fill(recording.upload, actions.own_recording, recording, [credit, inputs.sample_name])
    wire(recording.clear, actions.own_recording, recording, [credit, inputs.sample_name])
    recorded = [recording, microphone, credit, inputs.sample_name]
    fill(microphone.stop_recording, actions.add_recording, microphone, recorded)


def _wire_runs(actions: VisualiseActions, inputs: Inputs, results: Results) -> None:
    """Wires the events that make pictures."""
    run_outputs = [results.stage, results.status, inputs.start, inputs.cancel]
    limits = COMPUTING | {"trigger_mode": "multiple"}

    def make(event: Any, start: Any, **settings: Any) -> None:
        wire(event, start, inputs.form, run_outputs, **settings, **limits)

    pressed = wire(inputs.views.view, actions.press_view, inputs.models, inputs.offered)
    make(pressed.success, actions.start_if_ready, js=SHOW_RESULTS)
    make(inputs.start.click, actions.start, js=SHOW_RESULTS)
    wire(inputs.cancel.click, actions.cancel, None, inputs.cancel, queue=False)
    linked = [*inputs.picked, *inputs.models, *inputs.offered]
    restored = wire(results.stage.restore, actions.restore, None, linked)
    make(restored.success, actions.start_if_ready, js=SHOW_RESULTS)
    for each in inputs.options:
        make(each.submit if isinstance(each, gr.Textbox) else each.input, actions.start_if_changed)
