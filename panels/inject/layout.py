"""The Inject tab: layout and event wiring only. The event handlers are in `events`."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from panels.inject.embedding_view import EMPTY
from panels.inject.events import InjectActions
from panels.inject.run import TASK
from panels.inject.view import NOTHING_YET
from panels.running.kept_views import KeptViews, note_beside
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING, wire, wire_script, wire_value
from panels.transcribe.segment_editor import saver
from panels.widgets.early_presses import IN_TURN, before_press
from panels.widgets.html_block import html_block, seen_classes
from panels.widgets.model_chooser import model_chooser
from panels.widgets.option_inputs import make_inputs, shown_options
from panels.widgets.recording_actions import unreadable_html
from panels.widgets.recording_inputs import samples_html
from panels.widgets.run_history import follow_address, run_history
from panels.widgets.samples import read_samples
from panels.widgets.tab_parts import file_box, folded, folded_card, start_and_cancel, step_title
from workbench.families.language import PLACEHOLDER

NOT_SHOWN = ("alternatives",)  # options that the tab sets itself
SHOW_ANSWERS = """(...values) => {
  const answers = document.querySelector('#inject-results');
  const top = answers.getBoundingClientRect().top;
  const runs = document.querySelector('#embeddings .held li') && (values[1] || '').trim();
  if (runs && (top < 0 || top > innerHeight / 2)) answers.scrollIntoView({behavior: 'smooth', block: 'start'});
  return values;
}"""
SHOW_LOOK = """() => document.querySelector('#embedding-look').scrollIntoView({behavior: 'smooth', block: 'start'})"""
INSERT = f"""(prompt) => {{
  const area = document.querySelector('#inject-prompt textarea');
  const at = area && area.selectionStart !== undefined ? area.selectionStart : prompt.length;
  return prompt.slice(0, at) + '{PLACEHOLDER}' + prompt.slice(at);
}}"""


TAB = "inject"


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    samples = read_samples()
    options = tuple(each for each in shown_options(pool.registry, TASK) if each.spec.name not in NOT_SHOWN)
    actions = InjectActions(pool, samples, options)
    held, waiting = gr.State(()), gr.State(())
    made_prompt = gr.State("")  # the prompt that a recording brought

    with gr.Row(equal_height=False, elem_classes="bench"):
        with gr.Column(scale=5, min_width=300, elem_classes="inputs"):
            with gr.Column(elem_classes="card"):
                step_title(1, "Embeddings")
                chips = html_block(samples_html(samples, several=False), "pick", elem_id="inject-samples")
                recording = gr.Audio(
                    sources=["microphone", "upload"],
                    type="filepath",
                    label="Recording",
                    buttons=["download"],  # no button that sends the recording elsewhere
                    elem_id="inject-recording",
                )
                fault = html_block("", elem_id="inject-recording-fault", elem_classes="maybe")
                speech = gr.Dropdown(
                    actions.speech_models(),
                    label="Speech model",
                    info="The output of its adaptor goes into the prompt of its language model.",
                    elem_id="speech-model",
                )
                make = gr.Button("Add embeddings of the recording", size="sm", elem_id="make-embeddings")
                listed = html_block(EMPTY, "look", "earlier", "remove", "save", elem_id="embeddings")
                with folded("Add embedding files"):
                    files = file_box(".npy, .npz, .pt or .safetensors", "embedding-files", several=True)
                    with gr.Row(elem_id="which-tensor", elem_classes=seen_classes(False)) as which:
                        tensors = gr.Dropdown([], multiselect=True, label="Arrays", elem_id="tensor")
                        take = gr.Button("Add", size="sm", min_width=90, elem_id="take-tensor")
                        leave_out = gr.Button("Skip", size="sm", min_width=90, elem_id="leave-out-tensor")
            with gr.Column(elem_classes="card"):
                step_title(2, "Prompt")
                prompt = gr.Textbox(
                    label="Prompt",
                    info=f"Each {PLACEHOLDER} is replaced by an embedding, in the order of the list above.",
                    lines=4,
                    max_lines=16,
                    elem_id="inject-prompt",
                )
                insert = gr.Button("Insert a placeholder", size="sm", elem_id="insert-placeholder")
            with gr.Column(elem_classes="card"):
                step_title(3, "Language models")
                cells = model_chooser(elem_id="inject-models")
                unavailable = html_block("", elem_classes="maybe")
            with folded_card("Options of the models"):
                inputs = make_inputs(options, pool.registry, "inject")
            start, cancel = start_and_cancel("Inject", "inject", "cancel-inject")

        with gr.Column(scale=8, min_width=300, elem_id="inject-results", elem_classes="results"):
            history = run_history(TAB, page.runs.hours, elem_id="inject-history")
            earlier = html_block("", elem_id="inject-earlier", elem_classes="maybe")
            status = html_block("", elem_id="inject-status", elem_classes="status")
            answers = html_block(NOTHING_YET, elem_id="answers")
            look = html_block("", elem_id="embedding-look")
            download = saver(elem_id="inject-saver")

    fill = before_press(start, make)
    ready = fill(page.load, actions.refresh, cells, [cells, unavailable])
    wire_script(ready.success, follow_address(TAB))
    wire(cells.measure, actions.measure, cells, cells, trigger_mode="multiple")
    adding = [held, listed, which, tensors, waiting]
    fill(files.upload, actions.add, [files, held, waiting], [*adding, files])
    wire(take.click, actions.take, [waiting, tensors, held], adding)
    wire(leave_out.click, actions.leave_out, waiting, adding[2:])
    for event, function in ((listed.remove, actions.remove), (listed.earlier, actions.earlier)):
        wire(event, function, held, [held, listed])
    wire(listed.save, actions.save, held, download)
    looked = wire(listed.look, actions.look, [held, cells], look, **IN_TURN)
    wire_script(looked.success, SHOW_LOOK)
    picked = wire(chips.pick, actions.pick_sample, None, recording)
    wire(recording.change, unreadable_html, recording, fault, trigger_mode="always_last")
    wire_script(insert.click, INSERT, prompt, prompt)
    own_chat = inputs.get("chat") or gr.Checkbox(True, visible=False)  # the list may have no language model
    made = [held, listed, prompt, own_chat, status, made_prompt]
    wire(make.click, actions.make, [recording, speech, held, prompt, made_prompt], made, **COMPUTING)
    taken = [held, prompt, cells, *inputs.values()]
    ran = [wire(start.click, actions.start, taken, [answers, status, start, cancel], js=SHOW_ANSWERS, **COMPUTING)]
    # A new recording runs all the steps: embeddings are made, shown and injected.
    for event in (picked.success, recording.stop_recording, recording.upload):
        begun = wire(event, actions.begin_with, [recording, held], [held, listed, look])
        heard = wire(begun.success, actions.make, [recording, speech, held, prompt, made_prompt], made, **COMPUTING)
        wire(heard.success, actions.look_at_last, [held, cells], look)
        ran.append(
            wire(heard.success, actions.start, taken, [answers, status, start, cancel], js=SHOW_ANSWERS, **COMPUTING)
        )
    views = KeptViews(page.runs, TAB, len(taken), 3, files=(0,))

    def restore(event: gr.EventData) -> list[Any]:
        return actions.restore(views, event)

    for each in ran:
        wire(each.success, partial(actions.keep, views), [*taken, answers, status, look], history)
        wire(each.failure, partial(note_beside, NOTHING_YET), answers, status)
    wire_value(start.click, "", earlier)
    fill(history.restore, restore, None, [history, *taken, answers, status, look, earlier, listed], **IN_TURN)
    wire(cancel.click, actions.cancel, None, cancel, queue=False)
    page.unload(actions.leave)
