"""The Inject tab: layout and event wiring only. The event handlers are in `events`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gradio as gr

from panels.inject.events import InjectActions
from panels.inject.inputs import Embeddings, Prompt, embeddings_card, prompt_card
from panels.inject.run import TASK
from panels.inject.view import NOTHING_YET
from panels.running.kept_views import KeptViews, note_beside
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire, wire_script, wire_value
from panels.transcribe.segment_editor import saver
from panels.widgets.early_presses import before_press, wire_in_turn
from panels.widgets.html_block import html_block
from panels.widgets.model_chooser import Models, models_card
from panels.widgets.option_inputs import options_card, shown_options
from panels.widgets.run_history import follow_address, run_history
from panels.widgets.samples import read_samples
from panels.widgets.tab_parts import start_and_cancel
from workbench.families.language.directory import PLACEHOLDER

NOT_SHOWN = ("alternatives",)  # options that the tab sets itself
SHOW_ANSWERS = """(...values) => {
  const answers = document.querySelector('#inject-results');
  const top = answers.getBoundingClientRect().top;
  const runs = document.querySelector('#embeddings .held li') && (values[1] || '').trim();
  const away = top < 0 || top > innerHeight / 2;
  if (runs && away) answers.scrollIntoView({behavior: workbenchScrolling.behavior(), block: 'start'});
  return values;
}"""
SHOW_LOOK = """() => {
  const look = document.querySelector('#embedding-look');
  look.scrollIntoView({behavior: workbenchScrolling.behavior(), block: 'start'});
}"""
INSERT = f"""(prompt) => {{
  const area = document.querySelector('#inject-prompt textarea');
  const at = area && area.selectionStart !== undefined ? area.selectionStart : prompt.length;
  return prompt.slice(0, at) + '{PLACEHOLDER}' + prompt.slice(at);
}}"""

TAB = "inject"


class Inputs(NamedTuple):
    """The left column, from top to bottom."""

    embeddings: Embeddings
    prompt: Prompt
    models: Models
    options: dict[str, gr.components.Component]
    start: gr.Button
    cancel: gr.Button
    listed: gr.State  # the embeddings in the list
    waiting: gr.State  # the files with several arrays of which none is chosen yet
    made_prompt: gr.State  # the prompt that a recording brought
    new: gr.State  # the embedding that a speech model has made and that is not in the list yet

    @property
    def adding(self) -> list[Any]:
        """The outputs of `InjectActions.take`."""
        card = self.embeddings
        return [self.listed, card.listed, card.which, card.tensors, self.waiting]

    @property
    def form(self) -> list[Any]:
        """The inputs of a run."""
        return [self.listed, self.prompt.text, self.models.cells, *self.options.values()]


class Results(NamedTuple):
    """The right column, from top to bottom."""

    history: gr.HTML
    earlier: gr.HTML
    status: gr.HTML
    answers: gr.HTML
    look: gr.HTML  # the embedding that is open
    download: gr.HTML

    @property
    def stored_outputs(self) -> list[Any]:
        """The outputs whose HTML is stored with a run."""
        return [self.answers, self.status, self.look]


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    samples = read_samples()
    options = tuple(
        each for each in shown_options(pool.registry, TASK, guard=pool.guard) if each.spec.name not in NOT_SHOWN
    )
    actions = InjectActions(pool, samples, options)
    listed, waiting, made_prompt, new = gr.State(()), gr.State(()), gr.State(""), gr.State(None)

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=5, min_width=300, elem_classes="inputs"):
            inputs = Inputs(
                embeddings_card(samples, actions.speech_models()),
                prompt_card(),
                models_card(3, "Language models", "inject-models"),
                options_card(options, pool.registry, "inject"),
                *start_and_cancel("Inject", "inject-run", "cancel-inject"),
                listed,
                waiting,
                made_prompt,
                new,
            )
        with gr.Column(scale=8, min_width=300, elem_id="inject-results", elem_classes="results"):
            results = _results(page.runs.hours)

    fill = before_press(inputs.start, inputs.embeddings.make)
    _wire_models(page, actions, inputs, fill)
    _wire_embeddings(actions, inputs, results, fill)
    _wire_runs(page, actions, inputs, results, fill)
    page.unload(actions.leave)


def _results(hours: float) -> Results:
    """Creates the right column; returns its components."""
    return Results(
        run_history(TAB, hours, elem_id="inject-history"),
        html_block("", elem_id="inject-earlier", elem_classes="maybe"),
        html_block("", elem_id="inject-status", elem_classes="status"),
        html_block(NOTHING_YET, elem_id="answers"),
        html_block("", elem_id="embedding-look"),
        saver(elem_id="inject-saver"),
    )


def _wire_models(page: Page, actions: InjectActions, inputs: Inputs, fill: Callable[..., Any]) -> None:
    """Wires the list of models."""
    cells = inputs.models.cells
    ready = fill(page.load, actions.refresh, cells, [*inputs.models])
    wire_script(ready.success, follow_address(TAB))
    wire(cells.measure, actions.measure, cells, cells, trigger_mode="multiple")


def _wire_embeddings(actions: InjectActions, inputs: Inputs, results: Results, fill: Callable[..., Any]) -> None:
    """Wires the files of embeddings, and the list."""
    card, listed, waiting, adding = inputs.embeddings, inputs.listed, inputs.waiting, inputs.adding
    fill(card.files.upload, actions.add, [card.files, listed, waiting], [*adding, card.files])
    wire(card.take.click, actions.take, [waiting, card.tensors, listed], adding)
    wire(card.leave_out.click, actions.leave_out, waiting, [card.which, card.tensors, waiting])
    for event, function in ((card.listed.remove, actions.remove), (card.listed.earlier, actions.earlier)):
        wire(event, function, listed, [listed, card.listed])
    wire(card.listed.save, actions.save, listed, results.download)
    looked = wire_in_turn(card.listed.look, actions.look, [listed, inputs.models.cells], results.look)
    wire_script(looked.success, SHOW_LOOK)


def _wire_runs(page: Page, actions: InjectActions, inputs: Inputs, results: Results, fill: Callable[..., Any]) -> None:
    """Wires the recording, the runs that it and the button begin, and the runs that are kept."""
    card, text = inputs.embeddings, inputs.prompt.text
    picked = wire_in_turn(card.samples.pick, actions.pick_sample, None, card.recording)
    wire_value(card.recording.clear, "", card.fault)
    wire_script(inputs.prompt.insert.click, INSERT, text, text)
    own_chat = inputs.options.get("chat") or gr.Checkbox(True, visible=False)  # the list may have no language model

    def make(event: Callable[..., Any], **settings: Any) -> Any:
        """Wires an event to a speech model's work; returns the event that appends the embedding to the list."""
        recorded, outputs = [card.recording, card.speech], [inputs.new, results.status]
        made = wire(event, actions.make, recorded, outputs, **COMPUTING, **settings)
        appended_inputs = [inputs.new, inputs.listed, text, inputs.made_prompt]
        appended_outputs = [inputs.listed, card.listed, text, own_chat, inputs.made_prompt, inputs.new]
        return wire(made.success, actions.append, appended_inputs, appended_outputs, **settings)

    make(card.make.click)
    ran = [_wire_start(inputs.start.click, actions, inputs, results)]
    # A new recording runs all the steps: embeddings are made, shown and injected. A recording that comes during the
    # steps of another one runs them too, and its results come last.
    repeatable = {"trigger_mode": "multiple"}
    for event in (picked.success, card.recording.stop_recording, card.recording.upload):
        cleared_outputs = [inputs.listed, card.listed, results.look, card.fault]
        cleared = wire(event, actions.begin_with, [card.recording, inputs.listed], cleared_outputs, **repeatable)
        embedded = make(cleared.success, **repeatable)
        wire_in_turn(embedded.success, actions.look_at_last, [inputs.listed, inputs.models.cells], results.look)
        ran.append(_wire_start(embedded.success, actions, inputs, results, **repeatable))
    _wire_kept(page, actions, inputs, results, fill, ran)
    wire(inputs.cancel.click, actions.cancel, None, inputs.cancel, queue=False)


def _wire_start(
    event: Callable[..., Any], actions: InjectActions, inputs: Inputs, results: Results, **settings: Any
) -> Any:
    """Wires an event to a run of the models; returns the event of the run."""
    run_outputs = [results.answers, results.status, inputs.start, inputs.cancel]
    return wire(event, actions.start, inputs.form, run_outputs, js=SHOW_ANSWERS, **COMPUTING, **settings)


def _wire_kept(
    page: Page,
    actions: InjectActions,
    inputs: Inputs,
    results: Results,
    fill: Callable[..., Any],
    ran: Sequence[Any],
) -> None:
    """Wires the runs that are kept.

    Args:
        ran: the events of runs.
    """
    form, outputs = inputs.form, results.stored_outputs
    views = KeptViews(page.runs, page.sent.of(outputs), TAB, len(form), len(outputs), files=(0,))

    def restore(event: gr.EventData) -> list[Any]:
        return actions.restore(views, event)

    for each in ran:
        wire(each.success, partial(actions.keep, views), [*form, *outputs], results.history)
        wire(each.failure, partial(note_beside, NOTHING_YET), results.answers, results.status)
    wire_value(inputs.start.click, "", results.earlier)
    restored = [results.history, *form, *outputs, results.earlier, inputs.embeddings.listed]
    fill(results.history.restore, restore, None, restored, in_turn=True)
