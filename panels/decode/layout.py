"""The Decode tab: layout and event wiring only. The event handlers are in `events`."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import gradio as gr

from panels.decode.events import SWEPT, DecodeActions
from panels.decode.knowledge import FILES
from panels.decode.run import TITLES
from panels.decode.view import NOTHING_YET
from panels.running.kept_views import KeptViews, note_beside
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire, wire_script, wire_value
from panels.widgets.early_presses import IN_TURN, before_press
from panels.widgets.html_block import HIDDEN, html_block, seen_classes
from panels.widgets.option_inputs import make_inputs
from panels.widgets.recording_actions import unreadable_html
from panels.widgets.recording_inputs import recording_inputs
from panels.widgets.run_history import follow_address, run_history
from panels.widgets.samples import read_samples
from panels.widgets.scrolling import show_results
from panels.widgets.tab_parts import file_box, folded, folded_card, start_and_cancel, step_title
from workbench.registry.sources import assets

HOW_WRITTEN = """<p class="muted small">A language model is an ARPA file (it may be gzipped) or a KenLM binary. Each
line of a lexicon has a word, a tab, and the tokens of the word; <code>word(2)</code> is another pronunciation. Each
line of the phrases file is one phrase: words if there is a lexicon, otherwise tokens separated by spaces.</p>"""
LOGITS = """<p class="muted small">Logits that another program computed: one array [frames, tokens] in each file, and
the list of the tokens, one per line.</p>"""
SHOW_RESULTS = show_results(
    "decode-results",
    "(recordings, logits) => (recordings && recordings.length) || (logits && logits.length)",
)


def show(place: str) -> str:
    """Returns a script that scrolls to a part of the results and gives its heading the focus."""
    return f"""() => {{
  const part = document.querySelector('#{place}');
  part.scrollIntoView({{behavior: 'smooth', block: 'nearest'}});
  part.querySelector('h3')?.focus({{preventScroll: true}});
}}"""


TAB = "decode"
FILES_ASKED = (0, 1, 2, *range(8, 8 + len(FILES)))  # places of the inputs of a run that hold files


class Sweep(NamedTuple):
    """The card that sweeps two weights, from top to bottom."""

    pair: gr.Radio
    first: gr.Textbox
    second: gr.Textbox
    start: gr.Button
    cancel: gr.Button
    status: gr.HTML
    heat: gr.HTML


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    samples = read_samples()
    actions = DecodeActions(pool, samples)
    sample_text = gr.State("")  # the reference text that a sample brought

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=5, min_width=300, elem_classes="inputs"):
            with gr.Column(elem_classes="card"):
                step_title(1, "Recordings and model")
                chips, recordings, credit, microphone = recording_inputs(
                    samples, "Recordings", 130, "decode", several=True
                )
                model = gr.Dropdown([], label="Model with a CTC head", elem_id="decode-model")
                with folded("Or files of logits", elem_id="decode-files"):
                    html_block(LOGITS)
                    logits = file_box("Logits: .npy, .npz, .safetensors", "decode-logits", several=True)
                    tokens = file_box("Token list: .txt or .json", "decode-tokens")
                    blank = gr.Textbox(
                        value="0",
                        label="Blank",
                        info="The index of the blank token, counted from 0, or its name.",
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
            with gr.Column(elem_classes="card"):
                step_title(2, "Language models, lexicon, phrases", optional=True)
                examples = html_block(actions.examples_html(), "pick", elem_id="decode-examples")
                files, notes = {}, {}
                for together in (("lm", "boost"), ("lexicon", "word_lm")):
                    with gr.Row(elem_classes="pair"):
                        for option in together:
                            files[option] = gr.File(
                                label=FILES[option],
                                height=96,
                                min_width=130,
                                elem_id=f"decode-{option.replace('_', '-')}",
                                elem_classes=["boxed", "small-box"],
                            )
                    for option in together:
                        notes[option] = html_block(
                            "", elem_id=f"decode-{option.replace('_', '-')}-note", elem_classes="checked"
                        )
                files = {option: files[option] for option in FILES}
                notes = {option: notes[option] for option in FILES}
                html_block(HOW_WRITTEN)
                neural = gr.Dropdown(
                    [("none", "")],
                    value="",
                    label="Neural language model of the words",
                    info="It reads the text of the lexicon's words.",
                    elem_id="decode-neural",
                )
            with folded_card("Search and weights", elem_id="decode-search-options"):
                decoders = gr.CheckboxGroup(
                    [(title, name) for name, title in TITLES.items()],
                    value=list(TITLES),
                    label="Decoders to compare",
                    elem_id="decode-decoders",
                )
                inputs = make_inputs(actions.options, pool.registry, "decode-option")
            start, cancel = start_and_cancel("Decode", "decode-run", "decode-cancel")

        with gr.Column(scale=8, min_width=300, elem_id="decode-results", elem_classes="results"):
            history = run_history(TAB, page.runs.hours, elem_id="decode-history")
            earlier = html_block("", elem_id="decode-earlier", elem_classes="maybe")
            status = html_block("", elem_id="decode-status", elem_classes="status")
            table = html_block(NOTHING_YET, "look", "why", elem_id="decode-table")
            why = html_block("", elem_id="decode-why")
            with gr.Column(elem_id="decode-search", elem_classes=seen_classes(False, "card")) as followed:
                title = html_block("", elem_id="decode-search-title")
                search = gr.HTML(
                    None,
                    html_template='<div class="search"></div>',
                    js_on_load=(assets() / "search.js").read_text(encoding="utf-8"),
                    apply_default_css=False,
                    elem_id="decode-follow",
                )
            sweep = _sweep_card()

    fill = before_press(start, sweep.start)
    ready = fill(page.load, actions.refresh, [model, neural], [model, neural])
    wire_script(ready.success, follow_address(TAB))
    fill(chips.pick, actions.pick_sample, None, [recordings, reference, credit, sample_text, logits], **IN_TURN)
    for event in (recordings.upload, recordings.clear):
        forgotten = fill(event, actions.forget_sample, [reference, sample_text], [reference, credit, sample_text])
        wire(forgotten.success, unreadable_html, recordings, credit)
    wire(recordings.delete, unreadable_html, recordings, credit)
    fill(microphone.stop_recording, actions.add_recording, [microphone, recordings], [recordings, microphone])

    known = [model, logits, tokens, blank, *files.values()]
    for option, each in files.items():
        for event in (each.upload, each.clear):
            # Models of words, and phrases, are checked against the words of the lexicon.
            checked = FILES if option == "lexicon" else (option,)
            wire(event, partial(actions.check, tuple(checked)), known, [notes[name] for name in checked])
    for event in (model.input, tokens.upload, tokens.clear, logits.upload, logits.clear):
        wire(event, partial(actions.check, tuple(FILES)), known, list(notes.values()), trigger_mode="always_last")
    loaded = fill(
        examples.pick,
        actions.pick_example,
        None,
        [*files.values(), neural, *inputs.values(), logits, tokens, blank, recordings, reference, credit, sample_text],
        **IN_TURN,
    )
    wire(loaded.success, partial(actions.check, tuple(FILES)), known, list(notes.values()))

    taken = [recordings, logits, tokens, blank, model, reference, neural, decoders, *files.values(), *inputs.values()]
    ran = wire(
        start.click, actions.start, taken, [table, status, start, cancel, why, followed], js=SHOW_RESULTS, **COMPUTING
    )
    wire(ran.success, actions.look_at_first, None, [followed, title, search], **COMPUTING)
    wire(ran.failure, partial(note_beside, NOTHING_YET), table, status)
    views = KeptViews(page.runs, TAB, len(taken), 3, FILES_ASKED)

    def keep(request: gr.Request, *values: Any) -> Any:
        return actions.keep(views, str(request.session_hash), values)

    wire(ran.success, keep, [*taken, table, status, why], history)
    wire_value(start.click, "", earlier)
    back = fill(history.restore, views.restore, None, [history, *taken, table, status, why, earlier], **IN_TURN)
    wire(back.success, lambda: gr.update(elem_classes=seen_classes(False, "card")), None, followed)
    wire(cancel.click, actions.cancel, None, cancel, queue=False)
    looked = wire(table.look, actions.look, None, [followed, title, search], trigger_mode="multiple", **COMPUTING)
    wire_script(looked.success, show("decode-search"))
    asked = wire(table.why, actions.why, None, why, **IN_TURN)
    wire_script(asked.success, show("decode-why"))

    swept = [sweep.pair, sweep.first, sweep.second, *taken]
    wire(sweep.start.click, actions.sweep, swept, [sweep.heat, sweep.status, sweep.start, sweep.cancel], **COMPUTING)
    wire(sweep.cancel.click, actions.cancel, None, sweep.cancel, queue=False)
    wire(sweep.heat.use, actions.use, [sweep.pair], list(inputs.values()))
    page.unload(actions.leave)


def _sweep_card() -> Sweep:
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
