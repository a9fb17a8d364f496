"""Says what each model of the catalogue was made for, and which other model to use for sounds outside that domain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.audio.domain import read_domain
from workbench.core.errors import BadInput
from workbench.registry.cards import Card
from workbench.registry.sources import assets


def domain_file(card: Card) -> Path | None:
    """Returns the file of the card's domain, or None if the card names none. Raises `BadInput` if it is missing."""
    if not card.domain:
        return None
    path = Path(card.domain) if card.domain.endswith(".safetensors") else _shipped() / f"{card.domain}.safetensors"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in _shipped().glob("*.safetensors")))
        raise BadInput(
            f"the card of {card.id} has domain = {card.domain!r:.80}; expected one of {known}, or the path of a "
            ".safetensors file"
        )
    return path


def domain_name(card: Card) -> str:
    """Returns what the model knows, such as "English digits"; empty if the card has no domain."""
    path = domain_file(card)
    return read_domain(path).name if path is not None else ""


def alternative_model(card: Card, cards: Sequence[Card]) -> Card | None:
    """Returns the first model that transcribes and has no domain, so that it may know what `card` does not."""
    if not card.domain:
        return None
    return next((each for each in cards if "transcribe" in each.tasks and not each.domain), None)


def _shipped() -> Path:
    return assets() / "domains"
