"""Which models can run on which runtimes, as the page offers them: what can be chosen, and why the rest cannot.

Asks the registry; shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.cards import Card
from workbench.errors import BadInput
from workbench.options import build_options
from workbench.registry import Registry
from workbench.runtimes import RUNTIMES
from workbench.voice_activity import BUILT_IN

SEPARATOR = "|"


@dataclass(frozen=True)
class Cell:
    """A model on a runtime."""

    model: str
    runtime: str

    @property
    def value(self) -> str:
        """The cell as one string, which `parse` reads back."""
        return f"{self.model}{SEPARATOR}{self.runtime}"

    @classmethod
    def parse(cls, value: str) -> Cell:
        """The cell of a string such as `demo/sensevoice|pytorch`; PyTorch where it names no runtime."""
        model, _, runtime = value.partition(SEPARATOR)
        return cls(model.strip(), runtime.strip() or "pytorch")


@dataclass(frozen=True)
class Offer:
    """A model on a runtime as it stands on the page."""

    cell: Cell
    card: Card
    ready: bool  # it can run at once
    fetches: bool = False  # it can run, after a download
    reason: str = ""  # why it is not ready

    @property
    def possible(self) -> bool:
        return self.ready or self.fetches

    @property
    def title(self) -> str:
        return f"{self.card.name} · {runtime_title(self.cell.runtime)}"

    @property
    def label(self) -> str:
        """The title, with what choosing it costs."""
        if not self.fetches:
            return self.title
        size = f" {self.card.megabytes} MB" if self.card.megabytes else ""
        return f"{self.title} (downloads{size} first)"


def runtime_title(runtime: str) -> str:
    """How a runtime is called on the page."""
    return RUNTIMES[runtime].title if runtime in RUNTIMES else runtime


def offers(registry: Registry, task: str = "transcribe") -> tuple[Offer, ...]:
    """Every model that does the task, on every runtime, those that can run first."""
    found = []
    for card in registry.cards():
        if task not in card.tasks:
            continue
        for runtime in RUNTIMES:
            state = registry.availability(card, runtime)
            found.append(Offer(Cell(card.id, runtime), card, state.ready, state.fetches, state.reason or ""))
    return tuple(sorted(found, key=lambda offer: (not offer.ready, not offer.fetches)))


def chosen_offers(values: Iterable[str], known: Iterable[Offer]) -> tuple[Offer, ...]:
    """The offers of the values that a user sent, in their order, each once.

    Raises `BadInput` for no value, one that is not on the list, or one that cannot run: a page that others can reach
    opens no directory by its path.
    """
    listed = {offer.cell: offer for offer in known}
    cells = list(dict.fromkeys(Cell.parse(value) for value in values))
    if not cells:
        raise BadInput("no model is chosen; tick at least one")
    for cell in cells:
        if cell not in listed:
            models = ", ".join(dict.fromkeys(offer.cell.model for offer in listed.values()))
            raise BadInput(f"there is no {cell.model!r} on {cell.runtime!r} here; the models are {models}")
        if not listed[cell].possible:
            raise BadInput(f"{listed[cell].title} cannot run: {listed[cell].reason}")
    return tuple(listed[cell] for cell in cells)


def vad_choices(registry: Registry) -> tuple[str, ...]:
    """What the option `vad` may be on the page: the built-in names and the FSMN-VAD models of the list."""
    return (*BUILT_IN, *(card.id for card in registry.cards() if "vad" in card.tasks))


def options_for(registry: Registry, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given options that the model has, checked. Raises `BadInput` for a value it cannot take."""
    options_class = registry.options_class(model)
    names = options_class.__dataclass_fields__
    mine = {name: value for name, value in given.items() if name in names}
    if "vad" in mine and mine["vad"] not in vad_choices(registry):
        raise BadInput(f"option vad is {mine['vad']!r}; expected one of {', '.join(vad_choices(registry))}")
    build_options(options_class, mine, model)
    return mine


def check_options_known(registry: Registry, models: Iterable[str], given: Mapping[str, Any]) -> None:
    """Raises `BadInput` for an option that none of the models has."""
    known = {name for model in models for name in registry.options_class(model).__dataclass_fields__}
    for name in given:
        if name not in known:
            raise BadInput(f"none of the chosen models has an option {name!r}; they have {', '.join(sorted(known))}")
