"""Finds out whether a model can run on a runtime of this machine. It opens nothing and downloads nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.core.runtimes import RUNTIMES
from workbench.isolation.loader import check_runtime, why_not
from workbench.registry.cards import Card
from workbench.registry.sources import why_not_here
from workbench.registry.weights import why_not_converted

SERVED = "vllm"  # the runtime of a model on a server


@dataclass(frozen=True)
class Availability:
    """Whether a model can run on a runtime right now, and if not, why and how to get there."""

    ready: bool
    reason: str | None = None
    fetches: bool = False  # not ready, but opening it downloads what is missing


def default_runtime(card: Card) -> str:
    """Returns the default runtime of a model."""
    return {"gguf": "gguf", "server": SERVED}.get(card.kind, "pytorch")


def available(card: Card, runtime: str) -> Availability:
    """Returns whether the card's model can run on that runtime."""
    reason = why_not_runnable(card, runtime)
    if reason:
        return Availability(False, reason)
    try:
        if RUNTIMES[runtime].opens_gguf and (reason := why_not_converted(card)):
            return Availability(False, reason)
    except BadInput as error:  # a folder in the checkpoint directory that may not be read
        return Availability(False, str(error))
    missing = why_not_here(card)
    return Availability(missing is None, missing, fetches="hub" in card.source and missing is not None)


def why_not_runnable(card: Card, runtime: str) -> str | None:
    """Returns why the model cannot run on that runtime here, or None if it can; ignores where the checkpoint is."""
    check_runtime(runtime)
    served = card.kind == "server"
    if served and runtime != SERVED:
        return f"it runs on the server {card.place}, so it is opened as {SERVED}"
    reason = card.runtimes.get(runtime) or why_not(card.family, runtime, served)
    if reason or card.kind != "gguf" or RUNTIMES[runtime].opens_gguf:
        return reason
    opening = " or ".join(name for name, each in RUNTIMES.items() if each.opens_gguf)
    file = Path(card.place).name
    return f"{file} is a GGUF file, which runs on {opening}; {runtime} needs the checkpoint that it was made from"
