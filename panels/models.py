"""The Models tab: every card with its runtimes, and the sessions that are in memory."""

from __future__ import annotations

from typing import Any

import gradio as gr

from panels.blocks import html_block
from panels.cells import runtime_title
from panels.guard import guarded
from panels.markup import button, datum, element, size, text
from panels.pool import SessionPool
from workbench.cards import Card
from workbench.families import FAMILIES
from workbench.registry import Registry, Residency
from workbench.runtimes import RUNTIMES

REFRESH_SECONDS = 3.0
TASKS = {"transcribe": "transcribes speech", "generate": "writes text", "vad": "finds speech"}


def build(page: gr.Blocks, pool: SessionPool, tab: gr.Tab) -> None:
    """Lays the tab out in the current context and wires its events."""
    tabs = tab.parent
    assert isinstance(tabs, gr.Tabs)
    with gr.Column(elem_classes="card"):
        html_block("<h2>In memory</h2>")
        resident = html_block("", "release", elem_id="residents")
        idle = gr.Number(
            value=pool.idle_minutes,
            minimum=0.1,
            label="Unload a model after this many minutes without use",
            info="For everybody who uses this page. The next run loads it again.",
            elem_id="idle-minutes",
        )
    with gr.Column(elem_classes="card"):
        html_block("<h2>All models</h2>")
        listed = html_block("", elem_id="cards")
    timer = gr.Timer(REFRESH_SECONDS, active=False)

    def selected(event: gr.SelectData) -> tuple[Any, ...]:
        """Fresh values for the tab that is opened; nothing ticks while it is not seen."""
        if event.value != tab.label:
            return gr.skip(), gr.skip(), gr.skip(), gr.update(active=False)
        minutes = gr.update(value=pool.idle_minutes)
        return residents_html(pool), cards_html(pool.registry), minutes, gr.update(active=True)

    def unload(event: gr.EventData) -> str:
        pool.unload(datum(event._data, "model"), datum(event._data, "runtime"))
        return residents_html(pool)

    def set_idle(minutes: float | None) -> None:
        pool.idle_minutes = minutes

    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": None}
    tabs.select(guarded(selected), None, [resident, listed, idle, timer], **private)
    timer.tick(guarded(lambda: residents_html(pool)), None, resident, **private)
    resident.release(guarded(unload), None, resident, **private)
    idle.submit(guarded(set_idle), idle, None, **private)
    idle.blur(guarded(set_idle), idle, None, **private)


def residents_html(pool: SessionPool) -> str:
    """The sessions in memory, each with a button that unloads it."""
    residents = pool.residents()
    budget = f"of {size(pool.registry.memory_budget)} that models may use"
    if not residents:
        return element("p", text(f"No model is loaded: 0 MB {budget}."), "muted")
    rows = "".join(element("tr", _resident(each)) for each in residents)
    names = ("Model", "Memory", "State", "")
    head = element("tr", "".join(element("th", name, scope="col") for name in names))
    total = size(sum(each.memory_bytes for each in residents))
    table = element("table", element("thead", head) + element("tbody", rows), "stacking")
    return table + element("p", text(f"{total} {budget}."), "muted small")


def _resident(each: Residency) -> str:
    state = "at work" if each.busy else f"idle for {_minutes(each.idle_seconds)}"
    name = f"{text(each.model)} {element('span', text(runtime_title(each.runtime)), 'runtime')}"
    unload = "" if each.busy else button("Unload", "release", model=each.model, runtime=each.runtime)
    cells = (("Memory", text(size(each.memory_bytes))), ("State", text(state)), ("", unload))
    return element("th", name, scope="row") + "".join(element("td", value, data_label=label) for label, value in cells)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def cards_html(registry: Registry) -> str:
    """All cards as a table that becomes a list on narrow screens."""
    names = ("Model", "Languages", "Runs on", "Licence", "Source")
    head = element("tr", "".join(element("th", name, scope="col") for name in names))
    rows = "".join(element("tr", _card(registry, card)) for card in registry.cards())
    return element("table", element("thead", head) + element("tbody", rows), "stacking cards")


def _card(registry: Registry, card: Card) -> str:
    about = element("span", text(card.about), "muted small")
    does = element("span", text(", ".join(TASKS.get(task, task) for task in card.tasks)), "muted small")
    name = f"<b>{text(card.name)}</b><code>{text(card.id)}</code>{does}{about}"
    kind, place = next(iter(card.source.items()))
    source = {"demo": "comes with the workbench", "directory": "a directory on this machine"}.get(
        kind, f"{kind}: {place}"
    )
    runs = element("ul", "".join(_runtime(registry, card, runtime) for runtime in RUNTIMES), "runtimes")
    cells = (
        ("Languages", text(", ".join(card.languages) or "any")),
        ("Runs on", runs),
        ("Licence", text(card.licence or "not stated")),
        ("Source", text(source)),
    )
    return element("th", name, scope="row") + "".join(element("td", value, data_label=label) for label, value in cells)


def _runtime(registry: Registry, card: Card, runtime: str) -> str:
    state = registry.availability(card, runtime)
    css, mark, word = (
        ("ready", "✓", "ready") if state.ready else ("fetch", "↓", "") if state.fetches else ("not", "–", "")
    )
    reason = element("span", text(state.reason or word), "muted small")
    return element("li", f'<b><span aria-hidden="true">{mark}</span> {text(runtime_title(runtime))}</b> {reason}', css)


def models_list(registry: Registry) -> list[dict[str, Any]]:
    """All cards as plain values: id, name, family, languages, tasks, licence, and per runtime whether it is ready."""
    return [
        {
            "id": card.id,
            "name": card.name,
            "family": FAMILIES[card.family].title if card.family in FAMILIES else card.family,
            "languages": list(card.languages),
            "tasks": list(card.tasks),
            "licence": card.licence,
            "runtimes": {runtime: _state(registry, card, runtime) for runtime in RUNTIMES},
        }
        for card in registry.cards()
    ]


def _state(registry: Registry, card: Card, runtime: str) -> dict[str, Any]:
    state = registry.availability(card, runtime)
    return {"ready": state.ready, "reason": state.reason, "downloads": state.fetches}
