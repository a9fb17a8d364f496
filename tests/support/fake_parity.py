"""A registry for the Parity tab: its sessions compute the small network of `tests.support.networks`."""

from __future__ import annotations

from typing import Any

from tests.support.fake_lab import FakeRegistry
from tests.support.fake_panels import CARDS, LANGUAGE_CARDS
from workbench.families import FAMILIES
from workbench.registry.cards import BadCard, Card
from workbench.registry.registry import Availability, Residency
from workbench.registry.weights import Weights


class FakeParityRegistry(FakeRegistry):
    """Every model runs on pytorch and gguf, and none on vllm."""

    memory_budget = 8 << 30
    listed = (*CARDS, *LANGUAGE_CARDS)

    def cards(self) -> list[Card]:
        return list(self.listed)

    def bad_cards(self) -> list[BadCard]:
        return []

    def card(self, model: str) -> Card:
        return next(card for card in self.listed if card.id == model)

    def options_class(self, model: str) -> type[Any]:
        return FAMILIES[self.card(model).family].options_class

    def resolve_options(self, options: dict[str, Any]) -> dict[str, Any]:
        return options

    def default_runtime(self, card: Card) -> str:
        return "pytorch"

    def availability(self, card: Card, runtime: str) -> Availability:
        if runtime == "vllm":
            return Availability(False, f"{card.name} has nothing for vLLM to serve")
        fetches = "hub" in card.source
        return Availability(not fetches, "not downloaded yet" if fetches else None, fetches)

    def weights(self, card: Card, runtime: str) -> tuple[Weights, ...]:
        names = ("f16", "f32", "q8_0", "q4_0") if runtime == "gguf" else ()
        return tuple(Weights(name, 7_200_000, name == "f32", name == "f32") for name in names)

    def residents(self) -> list[Residency]:
        return []

    def unload_idle(self, seconds: float) -> list[Residency]:
        return []

    def close(self) -> None:
        pass
