"""The endpoint `/models` for scripts, `gradio_client` and notebooks: the models that other endpoints can use."""

from __future__ import annotations

from typing import Any

import gradio as gr

from panels.running.parameters import OBJECTS_SCHEMA, endpoint
from panels.running.root import Page
from panels.running.sessions import SessionPool
from workbench.core.runtimes import RUNTIMES
from workbench.families import FAMILIES
from workbench.registry.cards import BadCard, Card
from workbench.registry.domains import domain_name
from workbench.registry.registry import Registry


def build(page: Page, pool: SessionPool) -> None:
    """Adds the endpoint to the page, in the current context."""

    def models() -> list[dict[str, Any]]:
        return models_list(pool.registry)

    with gr.Column(visible=False):
        endpoint(
            page,
            models,
            {},
            "models",
            OBJECTS_SCHEMA,
            "models",
            "Lists all models, and per runtime whether they are ready.",
            {},
            queue=False,
        )


def models_list(registry: Registry) -> list[dict[str, Any]]:
    """Returns all cards as plain values: id, name, family, languages, tasks, licence, and the state of each runtime.

    A runtime's state says whether it is ready and, if it opens GGUF files, which quantisations can be asked for. A
    user's card that cannot be used is ready on no runtime, and says why.
    """
    listed: list[dict[str, Any]] = [
        {
            "id": card.id,
            "name": card.name,
            "family": FAMILIES[card.family].title if card.family in FAMILIES else card.family,
            "languages": list(card.languages),
            "domain": domain_name(card),
            "tasks": list(card.tasks),
            "licence": card.licence,
            "runtimes": {runtime: _state(registry, card, runtime) for runtime in RUNTIMES},
        }
        for card in registry.cards()
    ]
    return listed + [_unusable(each) for each in registry.bad_cards() if each.id]


def _unusable(card: BadCard) -> dict[str, Any]:
    found = card.to_dict()
    del found["source"]
    found["runtimes"] = {name: {**state, "downloads": False} for name, state in found["runtimes"].items()}
    return found


def _state(registry: Registry, card: Card, runtime: str) -> dict[str, Any]:
    state = registry.availability(card, runtime)
    found: dict[str, Any] = {"ready": state.ready, "reason": state.reason, "downloads": state.fetches}
    if RUNTIMES[runtime].opens_gguf:
        found["quantizations"] = [each.to_dict() for each in registry.weights(card, runtime)]
    return found
