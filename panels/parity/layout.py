"""The Parity tab: layout and event wiring only. The event handlers are in `events`."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from panels.parity.breaking import BreakingActions
from panels.parity.breaking_layout import breaking_card, wire_breaking
from panels.parity.events import BARE, END_TO_END, EXPERIMENTS, EXPORTS, MODES, PROMPTED, ParityActions
from panels.parity.example import example_html
from panels.parity.several import RECORDINGS
from panels.parity.view import NOTHING_YET, precision_choices, preset_choices
from panels.running.kept_views import KeptViews, note_beside
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire, wire_script, wire_value
from panels.transcribe.segment_editor import saver
from panels.widgets.early_presses import IN_TURN, before_press
from panels.widgets.html_block import html_block, scripted_html, seen_classes
from panels.widgets.recording_actions import unreadable_html
from panels.widgets.recording_inputs import recording_inputs
from panels.widgets.run_history import follow_address, run_history
from panels.widgets.samples import read_samples
from panels.widgets.scrolling import show_results
from panels.widgets.tab_parts import file_box, folded, folded_card, start_and_cancel, step_title
from workbench.compare.precision import AUTO
from workbench.compare.presets import MEASURES
from workbench.core.settings import KV_CACHES

SHOW_RESULTS = show_results(
    "parity-results",
    """(...values) => {
  const [, recording, prompt, , , candidates, traces] = values;
  const given = recording || prompt || [traces, values.at(-1)].some((each) => each && each.length);
  return given && (candidates || '').trim();
}""",
)
# Scrolls until the pictures are visible, but not past the heat map.
SHOW_CLOSER = """() => {
  const below = document.querySelector('#parity-closer').getBoundingClientRect().top - innerHeight * 0.55;
  if (below > 0) scrollBy({top: below, behavior: 'smooth'});
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
TRACES = """<p class="muted small">Arrays that another program computed for the same input. A mapping file says which
array is which stage; arrays that it does not name keep their names.</p>"""
TOGETHER = """<p class="muted small">These files replace the single input. Rounding can hide a small fault on each
input; over several inputs, it becomes visible.</p>"""
EXPERIMENTING = """<p class="muted small">Try a known cause of a divergence. Each switch adds an option to the
reference or to the candidates above, where you can edit it.</p>"""


TAB = "parity"
FILES = (1, 3, 6, 7, 16)  # which of the inputs of a run hold files


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    samples = read_samples()
    actions = ParityActions(pool, samples)
    opened, known = gr.State(None), gr.State(())
    models = actions.models()

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=5, min_width=300, elem_classes="inputs"):
            with gr.Column(elem_classes="card"):
                step_title(1, "Model and input")
                model = gr.Dropdown(
                    models, value=models[0][1] if models else None, label="Model", elem_id="parity-model"
                )
                note = html_block("", elem_id="parity-note")
                with gr.Column(elem_id="parity-speech", elem_classes=BARE) as speech:
                    chips, recording, credit, microphone = recording_inputs(samples, "Recording", 130, "parity")
                with gr.Column(elem_classes=seen_classes(False, BARE)) as text:
                    prompt = gr.Textbox(
                        value="",
                        label="Prompt",
                        info=PROMPTED,
                        lines=3,
                        max_lines=12,
                        elem_id="parity-prompt",
                    )
                    with folded("Embeddings in the prompt, in order") as merged:
                        embeddings = file_box(".npy, .npz, .pt or .safetensors", "parity-embeddings", several=True)
                with folded("Several inputs, one verdict", elem_id="parity-several-inputs") as together:
                    html_block(TOGETHER)
                    several = file_box(RECORDINGS, "parity-several", several=True)
            with gr.Column(elem_classes="card"):
                step_title(2, "What is compared")
                reference = gr.Dropdown(
                    [], label="Reference", allow_custom_value=True, elem_id="parity-reference", filterable=True
                )
                html_block('<p class="field">Candidates</p>')
                sides = scripted_html("sides.js", elem_id="parity-sides")
                candidates = gr.Textbox(
                    value="",
                    label="Candidates as text",
                    info="One per line: runtime:type. +name=value adds a setting or an option of one candidate.",
                    lines=2,
                    max_lines=8,
                    elem_id="parity-candidates",
                )
                mode = gr.Radio(MODES, value=END_TO_END, label="Mode", elem_id="parity-mode")
            with folded_card("Trace files of other programs", elem_id="parity-files"):
                html_block(TRACES)
                traces = file_box(".safetensors, .npz, .zip of .npy", "parity-traces", several=True)
                mapping = file_box("Mapping file: .toml or .json", "parity-mapping")
                precision = gr.Dropdown(
                    precision_choices(), value=AUTO, label="Precision of the other program", elem_id="parity-precision"
                )
                force = gr.Checkbox(label="Compare even traces of different inputs or models", elem_id="parity-force")
            with folded_card("Experiments", elem_id="parity-experiments"):
                html_block(EXPERIMENTING)
                with gr.Row(elem_classes="pair"):
                    switches = [_experiments(whose) for whose in ("Reference", "Candidates")]
            with folded_card("Stages and tolerance", elem_id="parity-tolerance"):
                stages = gr.Textbox(
                    value="*",
                    label="Stages",
                    info="A pattern such as encoder.*; several patterns are separated by commas.",
                    max_lines=1,
                    elem_id="parity-stages",
                )
                steps = gr.Textbox(
                    value="",
                    label="Decoding steps",
                    info="For models that write token by token: first, all, or numbers such as 1,5,20.",
                    placeholder="none: only the pass over the prompt",
                    max_lines=1,
                    elem_id="parity-steps",
                )
                preset = gr.Dropdown(preset_choices(), value="", label="Tolerance", elem_id="parity-preset")
                rules = gr.Textbox(
                    value="",
                    label="Your own limits",
                    info=f"One per line: MEASURE=LIMIT or STAGES:MEASURE=LIMIT. Measures: {', '.join(MEASURES)}.",
                    lines=2,
                    placeholder="encoder.*:relative_l2=1e-3",
                    elem_id="parity-rules",
                )
                exact = gr.Checkbox(
                    value=True,
                    label="Tell noise from a bug",
                    info="Computes the reference in float64 too.",
                    elem_id="parity-exact",
                )
            card = breaking_card()
            start, cancel = start_and_cancel("Compare", "parity-run", "parity-cancel")

        with gr.Column(scale=8, min_width=300, elem_id="parity-results", elem_classes="results"):
            history = run_history(TAB, page.runs.hours, elem_id="parity-history")
            earlier = html_block("", elem_id="parity-earlier", elem_classes="maybe")
            status = html_block("", elem_id="parity-status", elem_classes="status")
            empty = example_html() or NOTHING_YET
            result = scripted_html("heat.js", empty, elem_id="parity-result")
            with gr.Row(elem_classes=seen_classes(False, EXPORTS), elem_id="parity-exports") as exports:
                html_block('<span class="label">Report</span>')
                as_page = gr.Button("HTML", size="sm", min_width=56, elem_id="parity-html")
                as_json = gr.Button("JSON", size="sm", min_width=56, elem_id="parity-json")
                writing = html_block("", elem_id="parity-writing")
            closer = html_block("", "look", elem_id="parity-closer")
            download = saver(elem_id="parity-saver", elem_classes="saver")

    sided = [reference, candidates]
    of_speech = [each for column in switches for each in column[:2]]
    of_language = [column[3] for column in switches]
    offering = [note, reference, sides, candidates, speech, text, merged, prompt, together, several]
    offering += [*of_speech, *of_language]
    fill = before_press(start, card.plant, card.hide)
    ready = fill(page.load, actions.choose, [model, *sided, traces], offering)
    wire_script(ready.success, follow_address(TAB))
    fill(model.input, actions.choose, [model, *sided, traces], offering)
    pressed = wire_script(sides.toggle, TOGGLE, candidates, candidates)
    wire(pressed.then, actions.experiments, [candidates, *switches[1]], candidates)
    wire_script(candidates.change, MARK, candidates)
    for text_of, column in zip(sided, switches):
        for name, each in zip(EXPERIMENTS, column):
            wire(each.input, partial(actions.experiment, name), [text_of, each], text_of, trigger_mode="always_last")
    for event in (traces.upload, traces.clear, traces.delete):
        fill(event, actions.add_traces, [model, *sided, traces, known], [reference, candidates, sides, known])
    fill(chips.pick, actions.pick_sample, None, [recording, credit], **IN_TURN)
    for event in (recording.upload, recording.clear):
        wire(event, unreadable_html, recording, credit)
    fill(microphone.stop_recording, actions.add_recording, microphone, [recording, microphone])

    taken = [
        model,
        recording,
        prompt,
        embeddings,
        *sided,
        traces,
        mapping,
        mode,
        stages,
        preset,
        rules,
        exact,
        force,
        steps,
        precision,
        several,
    ]
    shown = [result, status, start, cancel, exports, opened]
    ran = wire(start.click, actions.start, taken, shown, js=SHOW_RESULTS, **COMPUTING)

    def look(event: Any) -> Any:
        return wire(event.success, actions.look_at_first, opened, [closer, opened])

    wire(ran.failure, partial(note_beside, empty), result, status)
    looked_at = look(ran)  # the open stage is kept with the run
    views = KeptViews(page.runs, TAB, len(taken), 3, FILES)

    def keep(request: gr.Request, *values: Any) -> Any:
        return actions.keep(views, str(request.session_hash), values[0], values)

    wire(looked_at.success, keep, [*taken, result, status, closer], history)
    wire_value(start.click, "", earlier)
    back = fill(history.restore, views.restore, None, [history, *taken, result, status, closer, earlier], **IN_TURN)
    wire(back.success, actions.choose, [model, *sided, traces], offering)
    breaking = BreakingActions(actions)
    wire_breaking(card, breaking, recording, shown, closer, look)
    page.unload(breaking.leave)
    wire(cancel.click, actions.cancel, None, cancel, queue=False)
    page.unload(actions.leave)

    for source in (result, closer):
        looked = wire(source.look, actions.look, opened, [closer, opened], **IN_TURN)
        if source is result:
            wire_script(looked.success, SHOW_CLOSER)
    for press, save in ((as_page, actions.save_page), (as_json, actions.save_json)):
        wire_value(press.click, WRITING, writing)
        written = wire(press.click, save, None, download)
        wire(written.then, lambda: "", None, writing)


WRITING = '<span class="muted small" role="status">Writing the report…</span>'


def _experiments(whose: str) -> list[Any]:
    """Returns the switches for one of the two: CMVN, dither, threads, and a language model's KV cache."""
    name = whose.lower()
    with gr.Column(min_width=130):
        html_block(f'<p class="field">{whose}</p>')
        return [
            gr.Checkbox(label="No CMVN", elem_id=f"parity-{name}-cmvn"),
            gr.Checkbox(label="Dither", elem_id=f"parity-{name}-dither"),
            gr.Textbox(value="", label="Threads", placeholder="default", max_lines=1, elem_id=f"parity-{name}-threads"),
            gr.Dropdown(
                [("f32 (default)", ""), *((each, each) for each in KV_CACHES if each != "f32")],
                value="",
                label="KV cache",
                elem_id=f"parity-{name}-kv",
            ),
        ]
