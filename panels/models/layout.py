"""The Models tab: every card with its runtimes, and the sessions in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import gradio as gr

from panels.running.choices import ModelOnRuntime, runtime_title
from panels.running.sessions import LONGEST_IDLE, SHORTEST_IDLE, SessionPool
from panels.running.wiring import wire, wire_script
from panels.widgets.html_block import html_block
from panels.widgets.markup import datum
from panels.widgets.model_chooser import vocabulary_note
from panels.widgets.templates import render
from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.runtimes import RUNTIMES
from workbench.registry.cards import Card
from workbench.registry.registry import Registry, Residency
from workbench.system.memory import size

VIEW = "models/view.html"
REFRESH_SECONDS = 3.0
LOG_BYTES = 6000  # length of a log's end that is shown
LOCAL_SOURCES = {
    "demo": "comes with the workbench",
    "directory": "a directory on this machine",
    "gguf": "a GGUF file on this machine",
}
TASKS = {
    "transcribe": "transcribes speech",
    "generate": "writes text",
    "converse": "answers conversations",
    "vad": "finds speech",
}


def build(page: gr.Blocks, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context and wires its events."""
    tabs = tab.parent
    assert isinstance(tabs, gr.Tabs)
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

    def selected(event: gr.EventData) -> tuple[Any, ...]:
        """Returns new values for the tab when it is opened; the timer only runs while the tab is visible."""
        if datum(event._data, "value") != tab.label:
            return gr.skip(), gr.skip(), gr.skip(), gr.update(active=False)
        minutes = gr.update(value=pool.idle_minutes)
        return residents_html(pool), cards_html(pool.registry), minutes, gr.update(active=True)

    def tick(name: str) -> tuple[Any, Any]:
        return residents_html(pool), log_html(pool, name) if name else gr.skip()

    def show_log(event: gr.EventData) -> tuple[str, str]:
        pool.guard.owners("the log of an engine")
        name = datum(event._data, "name")
        log = log_html(pool, name)
        if not log:
            raise BadInput("that engine has ended, and its log is gone; start it again with a run")
        return log, name

    def measured(event: gr.EventData) -> Iterator[Any]:
        """Yields the models with the sizes of their files as they are computed.

        The first time, this takes some seconds per model.
        """
        unmeasured = _unmeasured(pool.registry) if datum(event._data, "value") == tab.label else []
        for card, runtime in unmeasured:
            with suppress(WorkbenchError):  # the error appears when the model is opened
                pool.registry.measure(card, runtime)
            yield cards_html(pool.registry)
        yield gr.skip()

    def unload(event: gr.EventData) -> str:
        pool.guard.owners("unloading a model")
        cell = ModelOnRuntime.parse(datum(event._data, "cell"))
        pool.unload(cell.model, cell.runtime, cell.quantization or None)
        return residents_html(pool)

    def set_idle(minutes: float | None) -> None:
        if minutes == pool.idle_minutes:
            return
        pool.guard.owners("the time after which models are unloaded")
        pool.idle_minutes = minutes

    wire(tabs.select, selected, None, [resident, listed, idle, timer])
    wire(tabs.select, measured, None, listed)
    wire(timer.tick, tick, logged, [resident, log])
    wire(resident.release, unload, None, resident)
    wire(resident.log, show_log, None, [log, logged])
    wire(log.hide, lambda: ("", ""), None, [log, logged])
    # Enter moves the focus out of the field, which sets the time. So Enter followed by Tab sets it only once.
    wire_script(idle.submit, "() => document.activeElement.blur()")
    wire(idle.blur, set_idle, idle, None)


def _unmeasured(registry: Registry) -> list[tuple[Card, str]]:
    """Returns the local models whose file sizes are unknown, with the runtime that opens them."""
    return [
        (card, runtime)
        for card in registry.cards()
        for runtime in RUNTIMES
        if registry.availability(card, runtime).ready
        and any(each.nbytes is None for each in registry.weights(card, runtime))
    ]


def residents_html(pool: SessionPool) -> str:
    """Returns the sessions in memory, each with a button that unloads it."""
    residents = pool.residents()
    budget = f"of {size(pool.registry.memory_budget)} that models may use"
    if not residents:
        return render(VIEW, "nothing_loaded", budget)
    total = sum(each.memory_bytes for each in residents)
    return render(VIEW, "residents", [_resident(each) for each in residents], total, budget)


def _resident(each: Residency) -> tuple[Residency, ModelOnRuntime, str]:
    state = f"idle for {_minutes(each.idle_seconds)}" if each.state == "idle" else each.state
    return each, ModelOnRuntime(each.model, each.runtime, each.quantization or ""), state


def log_html(pool: SessionPool, name: str) -> str:
    """Returns the end of the log of an engine in memory, and the path of the whole log; empty if there is no such
    log.
    """
    path = next((each.log for each in pool.residents() if each.log and each.log.name == name), None)
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - LOG_BYTES, 0))
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        text = f"it cannot be read: {error.strerror}"
    return render(VIEW, "log", path, text.strip())


def _minutes(idle: float) -> str:
    return f"{idle:.0f} s" if idle < 90 else f"{idle / 60:.0f} min"


def cards_html(registry: Registry) -> str:
    """Returns all cards as a table, which becomes a list on narrow screens."""
    return render(VIEW, "cards", [_card(registry, card) for card in registry.cards()], registry.bad_cards())


def _card(registry: Registry, card: Card) -> tuple[Card, str, str, str, list[tuple[Any, ...]]]:
    """Returns a card, what it does, what it knows, where it comes from, and how it runs on each runtime."""
    tasks = ", ".join(TASKS.get(task, task) for task in card.tasks)
    source = LOCAL_SOURCES.get(card.kind, f"{card.kind}: {card.place}")
    return card, tasks, vocabulary_note(card), source, [_runtime(registry, card, runtime) for runtime in RUNTIMES]


def _runtime(registry: Registry, card: Card, runtime: str) -> tuple[Any, ...]:
    state = registry.availability(card, runtime)
    css, mark, word = (
        ("ready", "✓", "ready") if state.ready else ("fetch", "↓", "") if state.fetches else ("not", "–", "")
    )
    return css, mark, runtime_title(runtime), state.reason or word, registry.weights(card, runtime)
