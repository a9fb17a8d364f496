"""What `workbench models` prints: each model, and on each runtime whether it is ready, or why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from workbench.cli.arguments.help_text import one_line
from workbench.core.runtimes import RUNTIMES
from workbench.registry.cards import Card
from workbench.registry.registry import Registry


def model_lines(registry: Registry, as_json: bool, say: Callable[[str], None]) -> Iterator[str]:
    """Yields the models as text or as JSON; with JSON, `say` gets the reasons of entries that have no id."""
    cards, bad = registry.cards(), registry.bad_cards()
    if as_json:
        listed = [*(_listed(registry, card) for card in cards), *(each.to_dict() for each in bad if each.id)]
        yield json.dumps(listed, indent=2, ensure_ascii=False)
        for each in bad:
            if not each.id:
                say(f"workbench: {each.reason}")
        return
    for card in cards:
        languages = ", ".join(card.languages)
        yield one_line(f"{card.id}: {card.name}" + (f" ({languages})" if languages else ""))
        for name in RUNTIMES:
            state = registry.availability(card, name)
            sizes = ", ".join(each.label for each in registry.weights(card, name))
            yield f"  {name}: {'ready' if state.ready else state.reason}" + (f" ({sizes})" if sizes else "")
    for each in bad:
        yield one_line(each.reason)


def _listed(registry: Registry, card: Card) -> dict[str, Any]:
    """Returns a model as plain JSON values."""
    return {
        "id": card.id,
        "name": card.name,
        "family": card.family,
        "languages": card.languages,
        "tasks": card.tasks,
        "licence": card.licence,
        "source": dict(card.source),
        "runtimes": {name: _runtime(registry, card, name) for name in RUNTIMES},
    }


def _runtime(registry: Registry, card: Card, name: str) -> dict[str, Any]:
    state = registry.availability(card, name)
    found: dict[str, Any] = {"ready": state.ready, "reason": state.reason}
    if RUNTIMES[name].opens_gguf:
        found["quantizations"] = [each.to_dict() for each in registry.weights(card, name)]
    return found
