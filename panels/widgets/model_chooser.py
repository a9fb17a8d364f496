"""The chooser of models: a line for each, with its runtimes, and its quantisations behind a button.

Its value is plain data, made here from offers; its behaviour in the browser is in assets/.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import gradio as gr

from panels.running.choices import ModelOnRuntime, RuntimeOffer, offers, runtime_title
from panels.widgets.html_block import html_block
from panels.widgets.markup import text
from panels.widgets.tab_parts import step_title
from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.runtimes import RUNTIMES
from workbench.core.visitors import told
from workbench.registry.cards import Card
from workbench.registry.domains import domain_name
from workbench.registry.registry import Registry
from workbench.registry.sources import assets
from workbench.system.memory import size

MAX_LANGUAGES = 6  # languages that a line names
LOADING = '<p class="muted small loading" role="status">Looking up which models can run here</p>'


def model_chooser(**settings: Any) -> gr.HTML:
    """Returns checkboxes made from a `chooser_value`; until it has a value, it says that it is waiting.

    It triggers `choose` when a box is ticked, and `measure` with the `cell` of a model whose quantisations are opened
    while their sizes are unknown.
    """
    script = (assets() / "chooser.js").read_text(encoding="utf-8")
    return gr.HTML(
        None,
        html_template=f'<div class="chooser">{LOADING}</div>',
        js_on_load=script,
        apply_default_css=False,
        **settings,
    )


class Models(NamedTuple):
    """The card with the models."""

    cells: gr.HTML  # the chooser
    unavailable: gr.HTML  # why the others cannot be chosen


def models_card(number: int, title: str, elem_id: str) -> Models:
    """Creates the card with the models, a numbered step; returns its components."""
    with gr.Column(elem_classes="card"):
        step_title(number, title)
        return Models(model_chooser(elem_id=elem_id), html_block("", elem_classes="maybe"))


def chooser_value(
    offers: Sequence[RuntimeOffer], chosen: Iterable[str] = (), keep: bool = False, measured: str = ""
) -> dict[str, Any]:
    """Returns the chooser's value: `{"models": [...], "chosen": [values of cells], "keep": ..., "measured": ...}`.

    Args:
        chosen: values of cells to tick if they can run; without any, each model that is ready on this machine is ticked
            on its first runtime.
        keep: keeps the browser's ticks when the value arrives.
        measured: the cell of the `measure` event, even if its sizes could not be computed.
    """
    possible = [offer for offer in offers if offer.possible]
    values = {offer.cell.value for offer in possible}
    by_model = {offer.card.id: [each for each in possible if each.card.id == offer.card.id] for offer in possible}
    ticked = [value for value in chosen if value in values]
    first = [offered[0].cell.value for offered in by_model.values() if offered[0].ready and not offered[0].elsewhere]
    return {
        "models": [_model(offered) for offered in by_model.values()],
        "chosen": ticked or first,
        "keep": keep,
        "measured": measured,
    }


def with_sizes(registry: Registry, chooser: Any, value: str, task: str = "transcribe") -> dict[str, Any]:
    """Returns the chooser's value after a `measure` event with a cell: computes the sizes of that model's files."""
    cell = ModelOnRuntime.parse(value)
    for card in registry.cards():
        if card.id == cell.model:
            try:
                registry.measure(card, cell.runtime)
            except WorkbenchError as error:
                gr.Warning(text(told(error)))
    return chooser_value(offers(registry, task), chosen_in(chooser), keep=True, measured=cell.value)


def _model(offered: Sequence[RuntimeOffer]) -> dict[str, Any]:
    """Returns one model: its name, what choosing it needs, and its runtimes with their boxes."""
    card = offered[0].card
    megabytes = f" {size(card.megabytes * 10**6)}" if card.megabytes else ""
    return {
        "name": card.name,
        "note": f"downloads{megabytes} first" if offered[0].fetches else _where(offered[0]),
        "vocabulary": vocabulary_note(card),
        "here": offered[0].ready,
        "runtimes": [
            {"title": runtime_title(runtime), "boxes": [_box(offer) for offer in several]}
            for runtime, several in groupby(offered, key=lambda offer: offer.cell.runtime)
        ],
    }


def vocabulary_note(card: Card) -> str:
    """Returns what a model knows: its domain, such as `English digits only`, or else its languages."""
    if domain := domain_name(card):
        return f"{domain} only"
    listed = ", ".join(card.languages[:MAX_LANGUAGES])
    hidden = len(card.languages) - MAX_LANGUAGES
    return (f"{listed} and {hidden} more" if hidden > 0 else listed) or "any language"


def _where(offer: RuntimeOffer) -> str:
    return f"on {offer.card.place}" if offer.elsewhere else ""


def _box(offer: RuntimeOffer) -> dict[str, Any]:
    weights = offer.weights
    return {
        "value": offer.cell.value,
        "title": offer.title,
        "label": offer.cell.quantization,
        "hint": _hint(offer),
        "size": size(weights.nbytes) if weights and weights.nbytes is not None else "",
        "dtype": offer.card.settings.get(offer.cell.runtime, {}).get("dtype", ""),
        "there": bool(weights and weights.converted),
    }


def _hint(offer: RuntimeOffer) -> str:
    """Returns a hint on a session before it is opened: how it computes, and that an engine takes long to start."""
    if offer.elsewhere:
        return "Recordings are sent to that server."
    card_settings = offer.card.settings.get(offer.cell.runtime, {})
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in card_settings.items())
    engine = "It has its own engine, which takes up to a minute to start and then serves all visitors."
    return " ".join(filter(None, (engine if RUNTIMES[offer.cell.runtime].parallel else "", settings)))


def chosen_in(value: Any) -> list[str]:
    """Returns the ticked cells in a chooser's value; raises `BadInput` for invalid values, as a browser may send
    any.
    """
    chosen = value.get("chosen") if isinstance(value, dict) else []
    if not isinstance(chosen, list) or not all(isinstance(each, str) for each in chosen):
        raise BadInput("the ticked models cannot be read; reload the page")
    return chosen
