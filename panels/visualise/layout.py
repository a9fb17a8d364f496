"""The Visualise tab: layout and event wiring only. The event handlers are in `events`, the scripts in assets/."""

from __future__ import annotations

import gradio as gr

from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire
from panels.visualise.events import ACCORDION, FIRST_VIEW, NOTHING, VisualiseActions
from panels.visualise.own_recordings import OwnRecordings
from panels.visualise.routes import visualise_routes
from panels.visualise.view import NOTHING_YET
from panels.widgets.early_presses import IN_TURN, before_press
from panels.widgets.html_block import HIDDEN, html_block, seen_classes
from panels.widgets.option_inputs import make_inputs
from panels.widgets.recording_inputs import recording_inputs
from panels.widgets.samples import read_samples
from panels.widgets.scrolling import show_results
from panels.widgets.tab_parts import start_and_cancel, step_title
from workbench.registry.sources import assets

SHOW_RESULTS = show_results("visualise-results", "(recording, _, text) => recording || text")


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    samples = read_samples()
    actions = VisualiseActions(pool, samples, OwnRecordings(page.runs))
    page.routes += visualise_routes(actions.find)
    view, sample_name = gr.State(FIRST_VIEW), gr.State("")  # the name of the sample that is the recording

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=4, min_width=300, elem_classes="inputs"):
            with gr.Column(elem_classes="card"):
                step_title(1, "Recording and model")
                with gr.Column(elem_id="visualise-speech") as speech:
                    chips, recording, credit, microphone = recording_inputs(samples, "Recording", 110, "visualise")
                written = gr.Textbox(
                    value="",
                    label="Text",
                    info="The message to the model, or its prompt.",
                    lines=2,
                    max_lines=8,
                    visible=HIDDEN,
                    elem_id="visualise-text",
                )
                one = gr.Dropdown([], label="Model", elem_id="visualise-model")
                other = gr.Dropdown(
                    [("nothing", NOTHING)],
                    value=NOTHING,
                    label="Compare with",
                    info="Another model, runtime or quantisation. The tab then shows both, and their difference.",
                    elem_id="visualise-beside",
                )
            with gr.Column(elem_classes="card"):
                step_title(2, "View")
                views = html_block("", "view", elem_id="visualise-views")
            with gr.Column(elem_classes=seen_classes(False, "card"), elem_id="visualise-options") as settings:
                html_block("<h2>Options of the view <small>optional</small></h2>")
                inputs = make_inputs(actions.options, pool.registry, "visualise-option")
            with gr.Accordion(
                "Options of the models",
                open=False,
                elem_classes=seen_classes(False, *ACCORDION),
                elem_id="visualise-model-options",
            ) as of_models:
                own = make_inputs(actions.model_options, pool.registry, "visualise-model")
            start, cancel = start_and_cancel("Show", "visualise-run", "visualise-cancel")

        with gr.Column(scale=9, min_width=300, elem_id="visualise-results", elem_classes="results"):
            status = html_block("", elem_id="visualise-status", elem_classes="status")
            stage = gr.HTML(
                None,
                html_template=f'<div class="stage">{NOTHING_YET}</div>',
                js_on_load=(assets() / "visualise" / "start.js").read_text(encoding="utf-8"),
                apply_default_css=False,
                elem_id="visualise-stage",
            )

    choosing = [view, views, speech, written, settings, *inputs.values(), of_models, *own.values()]
    taken = [recording, sample_name, written, one, other, view, *inputs.values(), *own.values()]
    shown = [stage, status, start, cancel]
    limits = COMPUTING | {"trigger_mode": "multiple"}

    fill = before_press(start)
    fill(page.load, actions.refresh, [one, other, view], [one, other, *choosing])
    for event in (one.input, other.input):
        fill(event, actions.choose, [one, other, view], choosing, trigger_mode="always_last")
    fill(chips.pick, actions.pick_sample, None, [recording, credit, sample_name], **IN_TURN)
    fill(recording.upload, actions.own_recording, recording, [credit, sample_name])
    wire(recording.clear, actions.own_recording, recording, [credit, sample_name])
    fill(microphone.stop_recording, actions.add_recording, microphone, [recording, microphone, credit, sample_name])

    pressed = wire(views.view, actions.press_view, [one, other], choosing)
    wire(pressed.success, actions.start_if_ready, taken, shown, js=SHOW_RESULTS, **limits)
    wire(start.click, actions.start, taken, shown, js=SHOW_RESULTS, **limits)
    wire(cancel.click, actions.cancel, None, cancel, queue=False)
    restored = wire(stage.restore, actions.restore, None, [recording, credit, sample_name, one, other, *choosing])
    wire(restored.success, actions.start_if_ready, taken, shown, js=SHOW_RESULTS, **limits)
    for each in (*inputs.values(), *own.values()):
        event = each.submit if isinstance(each, gr.Textbox) else each.input  # type: ignore[attr-defined]
        wire(event, actions.start_if_ready, taken, shown, **limits)
    page.unload(actions.leave)
