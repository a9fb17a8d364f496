"""HTML of the Models tab: the sessions in memory, the log of an engine, and the table of all cards."""

from __future__ import annotations

from typing import Any

from panels.running.choices import ModelOnRuntime, runtime_title
from panels.running.sessions import SessionPool
from panels.widgets.model_chooser import vocabulary_note
from panels.widgets.templates import render
from workbench.core.runtimes import RUNTIMES
from workbench.registry.cards import Card
from workbench.registry.registry import Registry, Residency
from workbench.system.memory import size

VIEW = "models/view.html"
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


def residents_html(pool: SessionPool) -> str:
    """Returns the sessions in memory; for the owner, each with buttons that unload it and show its log."""
    residents = pool.residents()
    budget = f"of {size(pool.registry.memory_budget)} that models may use"
    if not residents:
        return render(VIEW, "nothing_loaded", budget)
    total = sum(each.memory_bytes for each in residents)
    return render(VIEW, "residents", [_resident(each) for each in residents], total, budget, not pool.guard.public)


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


def cards_html(pool: SessionPool) -> str:
    """Returns all cards as a table, which becomes a list on narrow screens."""
    registry = pool.registry
    lines = [_card(registry, card, pool.guard.public) for card in registry.cards()]
    return render(VIEW, "cards", lines, registry.bad_cards())


def _card(registry: Registry, card: Card, public: bool) -> tuple[Card, str, str, str, list[tuple[Any, ...]]]:
    """Returns a card, what it does, what it knows, where it comes from, and how it runs on each runtime."""
    tasks = ", ".join(TASKS.get(task, task) for task in card.tasks)
    source = LOCAL_SOURCES.get(card.kind, f"{card.kind}: {card.place}")
    if public and card.kind == "server":  # its address is for the owner
        source = "another server"
    return card, tasks, vocabulary_note(card), source, [_runtime(registry, card, runtime) for runtime in RUNTIMES]


def _runtime(registry: Registry, card: Card, runtime: str) -> tuple[Any, ...]:
    state = registry.availability(card, runtime)
    css, mark, word = (
        ("ready", "✓", "ready") if state.ready else ("fetch", "↓", "") if state.fetches else ("not", "–", "")
    )
    return css, mark, runtime_title(runtime), state.reason or word, registry.weights(card, runtime)
