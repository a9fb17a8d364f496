"""The Models tab: every card with its runtimes, and the sessions in memory."""

from __future__ import annotations

import gradio as gr

from panels.models.events import ModelsActions
from panels.running.sessions import LONGEST_IDLE, SHORTEST_IDLE, SessionPool
from panels.running.wiring import wire, wire_script
from panels.widgets.html_block import html_block

REFRESH_SECONDS = 3.0


def build(page: gr.Blocks, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    tabs = tab.parent
    assert isinstance(tabs, gr.Tabs)
    actions = ModelsActions(pool, tab)
    with gr.Column(elem_classes="card"):
        html_block("<h2>In memory</h2>")
        resident = html_block("", "release", "log", elem_id="residents")
        log = html_block("", "hide", elem_id="engine-log")
        logged = gr.State("")  # the name of the open log
        idle = gr.Number(
            value=pool.idle_minutes,  # the pool checks the limits, as its sentence is plainer than Gradio's
            label="Unload a model after this many minutes without use",
            info=f"{SHORTEST_IDLE:g} to {LONGEST_IDLE:g} (a week). This holds for all visitors of the page. "
            "The next run loads the model again.",
            elem_id="idle-minutes",
            visible=not pool.guard.public,
        )
    with gr.Column(elem_classes="card"):
        html_block("<h2>All models</h2>")
        listed = html_block("", elem_id="cards")
    timer = gr.Timer(REFRESH_SECONDS, active=False)
    wire(tabs.select, actions.select_tab, None, [resident, listed, idle, timer])
    wire(tabs.select, actions.measure_files, None, listed)
    wire(timer.tick, actions.refresh, logged, [resident, log])
    wire(resident.release, actions.unload, None, resident)
    wire(resident.log, actions.show_log, None, [log, logged])
    wire(log.hide, lambda: ("", ""), None, [log, logged])
    # Enter moves the focus out of the field, which sets the time. So Enter followed by Tab sets it only once.
    wire_script(idle.submit, "() => document.activeElement.blur()")
    wire(idle.blur, actions.set_idle, idle, None)
