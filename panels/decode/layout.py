"""The Decode tab: layout and event wiring only. The event handlers are in `events`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gradio as gr

from panels.decode.events import SWEPT, DecodeActions
from panels.decode.form import PLACES_OF_FILES, Form
from panels.decode.inputs import Knowledge, Search, Sources, knowledge_card, search_card, sources_card
from panels.decode.knowledge import FILES
from panels.decode.view import NOTHING_YET
from panels.running.kept_views import KeptViews, note_beside
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire, wire_script, wire_value
from panels.widgets.early_presses import before_press, wire_in_turn
from panels.widgets.html_block import HIDDEN, html_block, visibility_classes
from panels.widgets.recording_actions import unreadable_html
from panels.widgets.run_history import follow_address, run_history
from panels.widgets.samples import read_samples
from panels.widgets.scrolling import show_results
from panels.widgets.tab_parts import folded_card, start_and_cancel
from workbench.registry.sources import assets

SHOW_RESULTS = show_results(
    "decode-results",
    "(recordings, logits) => (recordings && recordings.length) || (logits && logits.length)",
)


def show(place: str) -> str:
    """Returns a script that scrolls to a part of the results and gives its heading the focus."""
    return f"""() => {{
  const part = document.querySelector('#{place}');
  part.scrollIntoView({{behavior: workbenchScrolling.behavior(), block: 'nearest'}});
  part.querySelector('h3')?.focus({{preventScroll: true}});
}}"""


TAB = "decode"


class Inputs(NamedTuple):
    """The left column, from top to bottom."""

    sources: Sources
    knowledge: Knowledge
    search: Search
    start: gr.Button
    cancel: gr.Button
    sample_text: gr.State  # the reference text that a sample brought

    @property
    def options(self) -> list[Any]:
        """The inputs for options of the search."""
        return list(self.search.options.values())

    @property
    def checked(self) -> list[Any]:
        """The inputs of `DecodeActions.check`."""
        sources = self.sources
        given = [sources.recording.files, sources.logits, sources.tokens, sources.blank]
        return [sources.model, *given, *self.knowledge.files.values()]

    @property
    def example(self) -> list[Any]:
        """The outputs of `DecodeActions.pick_example`."""
        sources, knowledge = self.sources, self.knowledge
        logits = [sources.logits, sources.tokens, sources.blank]
        inputs = [sources.recording.files, sources.reference, sources.recording.credit, self.sample_text]
        return [*knowledge.files.values(), knowledge.neural, *self.options, *logits, *inputs]

    @property
    def form(self) -> Form:
        """The inputs of a run."""
        sources, knowledge = self.sources, self.knowledge
        return Form(
            recordings=sources.recording.files,
            logits=sources.logits,
            tokens=sources.tokens,
            blank=sources.blank,
            model=sources.model,
            reference=sources.reference,
            neural=knowledge.neural,
            decoders=self.search.decoders,
            files=list(knowledge.files.values()),
            options=self.options,
        )


class Sweep(NamedTuple):
    """The card that sweeps two weights, from top to bottom."""

    pair: gr.Radio
    first: gr.Textbox
    second: gr.Textbox
    start: gr.Button
    cancel: gr.Button
    status: gr.HTML
    heat: gr.HTML


class Results(NamedTuple):
    """The right column, from top to bottom."""

    history: gr.HTML
    earlier: gr.HTML
    status: gr.HTML
    table: gr.HTML
    why: gr.HTML  # why a word was chosen
    followed: gr.Column  # the card with the search that is followed
    title: gr.HTML
    search: gr.HTML
    sweep: Sweep

    @property
    def stored_outputs(self) -> list[Any]:
        """The outputs whose HTML is stored with a run."""
        return [self.table, self.status, self.why]

    @property
    def followed_search(self) -> list[Any]:
        """The outputs that show a search frame by frame."""
        return [self.followed, self.title, self.search]


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    samples = read_samples()
    actions = DecodeActions(pool, samples)
    sample_text = gr.State("")

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=5, min_width=300, elem_classes="inputs"):
            inputs = Inputs(
                sources_card(samples),
                knowledge_card(actions.examples_html()),
                search_card(actions.options, pool),
                *start_and_cancel("Decode", "decode-run", "decode-cancel"),
                sample_text,
            )
        with gr.Column(scale=8, min_width=300, elem_id="decode-results", elem_classes="results"):
            results = _results(page.runs.hours)

    fill = before_press(inputs.start, results.sweep.start)
    _wire_sources(page, actions, inputs, fill)
    _wire_knowledge(actions, inputs, fill)
    _wire_runs(page, actions, inputs, results, fill)
    _wire_results(actions, results)
    _wire_sweep(actions, inputs, results.sweep)
    page.unload(actions.leave)


def _results(hours: float) -> Results:
    """Creates the right column; returns its components."""
    history = run_history(TAB, hours, elem_id="decode-history")
    earlier = html_block("", elem_id="decode-earlier", elem_classes="maybe")
    status = html_block("", elem_id="decode-status", elem_classes="status")
    table = html_block(NOTHING_YET, "look", "why", elem_id="decode-table")
    why = html_block("", elem_id="decode-why")
    with gr.Column(elem_id="decode-search", elem_classes=visibility_classes(False, "card")) as followed:
        title = html_block("", elem_id="decode-search-title")
        search = gr.HTML(
            None,
            html_template='<div class="search"></div>',
            js_on_load=(assets() / "search.js").read_text(encoding="utf-8"),
            apply_default_css=False,
            elem_id="decode-follow",
        )
    return Results(history, earlier, status, table, why, followed, title, search, _sweep_card())


def _sweep_card() -> Sweep:
    """Creates the card that sweeps two weights; returns its components."""
    with folded_card("Sweep two weights over all recordings", elem_id="decode-sweep"):
        html_block(
            '<p class="muted small">This needs reference texts. The page searches each recording a few times, '
            "and then ranks the hypotheses again for every pair of weights.</p>"
        )
        pair = gr.Radio(
            [(each.title, key) for key, each in SWEPT.items()],
            value=next(iter(SWEPT)),
            label="Weights",
            elem_id="decode-pair",
        )
        with gr.Row(elem_classes="pair"):
            first = gr.Textbox(
                value="0 to 2, 9",
                label="First: from, to, number of values",
                max_lines=1,
                elem_id="decode-first",
            )
            second = gr.Textbox(
                value="-2 to 2, 9",
                label="Second: from, to, number of values",
                max_lines=1,
                elem_id="decode-second",
            )
        with gr.Row(elem_classes="pair"):
            start = gr.Button("Sweep", size="sm", elem_id="decode-sweep-run")
            cancel = gr.Button("Cancel", size="sm", visible=HIDDEN, elem_id="decode-sweep-cancel")
        status = html_block("", elem_id="decode-sweeping", elem_classes="status")
        heat = html_block("", "use", elem_id="decode-heat")
    return Sweep(pair, first, second, start, cancel, status, heat)


def _wire_sources(page: Page, actions: DecodeActions, inputs: Inputs, fill: Callable[..., Any]) -> None:
    """Wires the lists of models, the samples and the recordings."""
    sources, sample_text = inputs.sources, inputs.sample_text
    models = [sources.model, inputs.knowledge.neural]
    ready = fill(page.load, actions.refresh, models, models)
    wire_script(ready.success, follow_address(TAB))
    chips, recordings, credit, microphone = sources.recording
    texts = [sources.reference, credit, sample_text]
    picked = fill(chips.pick, actions.pick_sample, None, [recordings, *texts, sources.logits], in_turn=True)
    for event in (recordings.upload, recordings.clear):
        forgetting = fill(event, actions.forget_sample, [sources.reference, sample_text], texts)
        wire(forgetting.success, unreadable_html, recordings, credit)
    wire(recordings.delete, unreadable_html, recordings, credit)
    recorded = fill(
        microphone.stop_recording, actions.add_recording, [microphone, recordings], [recordings, microphone]
    )
    events = (picked.success, recorded.success, recordings.upload, recordings.clear)
    for event in (*events, sources.blank.blur, sources.blank.submit):
        notes = list(inputs.knowledge.notes.values())
        wire(event, actions.check_again, inputs.checked, notes, trigger_mode="always_last")


def _wire_knowledge(actions: DecodeActions, inputs: Inputs, fill: Callable[..., Any]) -> None:
    """Wires the examples, and the checks of the files."""
    sources, knowledge = inputs.sources, inputs.knowledge
    notes, check_all = list(knowledge.notes.values()), partial(actions.check, tuple(FILES))
    for option, each in knowledge.files.items():
        for event in (each.upload, each.clear):
            # Models of words, and phrases, are checked against the words of the lexicon.
            checked_options = FILES if option == "lexicon" else (option,)
            outputs = [knowledge.notes[name] for name in checked_options]
            wire(event, partial(actions.check, tuple(checked_options)), inputs.checked, outputs)
    logits, tokens = sources.logits, sources.tokens
    for event in (sources.model.input, tokens.upload, tokens.clear, logits.upload, logits.clear):
        wire(event, check_all, inputs.checked, notes, trigger_mode="always_last")
    loaded = fill(knowledge.examples.pick, actions.pick_example, None, inputs.example, in_turn=True)
    wire(loaded.success, check_all, inputs.checked, notes)


def _wire_runs(page: Page, actions: DecodeActions, inputs: Inputs, results: Results, fill: Callable[..., Any]) -> None:
    """Wires the run, and the runs that are kept."""
    form, table, status = inputs.form.inputs, results.table, results.status
    run_outputs = [table, status, inputs.start, inputs.cancel, results.why, results.followed]
    decoding = wire(inputs.start.click, actions.start, form, run_outputs, js=SHOW_RESULTS, **COMPUTING)
    wire(decoding.success, actions.look_at_first, None, results.followed_search, **COMPUTING)
    wire(decoding.failure, partial(note_beside, NOTHING_YET), table, status)
    outputs = results.stored_outputs
    views = KeptViews(page.runs, page.sent.of(outputs), TAB, len(form), len(outputs), PLACES_OF_FILES)

    def keep(request: gr.Request, *values: Any) -> Any:
        return actions.keep(views, str(request.session_hash), values)

    wire(decoding.success, keep, [*form, *outputs], results.history)
    wire_value(inputs.start.click, "", results.earlier)
    restored = [results.history, *form, *outputs, results.earlier]
    restoring = fill(results.history.restore, views.restore, None, restored, in_turn=True)
    wire(restoring.success, lambda: gr.update(elem_classes=visibility_classes(False, "card")), None, results.followed)
    wire(inputs.cancel.click, actions.cancel, None, inputs.cancel, queue=False)


def _wire_results(actions: DecodeActions, results: Results) -> None:
    """Wires the buttons in the table: they follow a search, and explain a word."""
    following = wire(
        results.table.look, actions.look, None, results.followed_search, trigger_mode="multiple", **COMPUTING
    )
    wire_script(following.success, show("decode-search"))
    explaining = wire_in_turn(results.table.why, actions.why, None, results.why)
    wire_script(explaining.success, show("decode-why"))


def _wire_sweep(actions: DecodeActions, inputs: Inputs, sweep: Sweep) -> None:
    """Wires the card that sweeps two weights."""
    swept = [sweep.pair, sweep.first, sweep.second, *inputs.form.inputs]
    wire(sweep.start.click, actions.sweep, swept, [sweep.heat, sweep.status, sweep.start, sweep.cancel], **COMPUTING)
    wire(sweep.cancel.click, actions.cancel, None, sweep.cancel, queue=False)
    wire(sweep.heat.use, actions.use, [sweep.pair], inputs.options)
