"""The models that can be named: by shipped cards, by the user's own cards, and by cards made for a local path.

It says which they are; whether they run here, and running them, is `workbench.registry.registry`'s.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.families import FAMILIES, family_of
from workbench.formats.gguf_file import is_gguf
from workbench.formats.weight_files import check_downloaded
from workbench.registry.cards import SHIPPED, BadCard, Card, read_cards, read_list, user_cards_path
from workbench.registry.sources import on_disk, why_unreachable, why_unreadable


@dataclass(frozen=True)
class Catalogue:
    """The models that can be named, and the errors of the user's cards that cannot be used."""

    cards: tuple[Card, ...]
    bad: tuple[BadCard, ...] = ()

    @property
    def ids(self) -> set[str]:
        """All ids, including those of cards that cannot be used."""
        return {card.id for card in self.cards} | {each.id for each in self.bad if each.id}


def read_catalogue() -> Catalogue:
    """Returns the shipped cards, then the user's own. An own card replaces a shipped one, even if it cannot be used."""
    shipped = _shipped(SHIPPED)
    path = user_cards_path()
    own_cards: list[Card] = []
    bad: list[BadCard] = []
    if _is_there(path):
        own_cards, bad = read_list(path)
    elif os.environ.get("WORKBENCH_MODELS"):
        bad = [BadCard("", f"WORKBENCH_MODELS names {path!s:.200}, and there is no such file")]
    usable = []
    for card in own_cards:
        if reason := _why_unusable(card):
            bad.append(BadCard(card.id, f"model {card.id!r} in {path.name} cannot be used: {reason}"))
        else:
            usable.append(card)
    own_ids = {card.id for card in own_cards} | {each.id for each in bad}
    bad += [BadCard("", sentence) for sentence in FAMILIES.refused]
    return Catalogue((*(card for card in shipped if card.id not in own_ids), *usable), tuple(bad))


@lru_cache(maxsize=1)
def _shipped(path: Path) -> tuple[Card, ...]:
    """Returns the shipped cards, which stay the same: a server asks for them several times in each request."""
    return tuple(read_cards(path))


def find_card(model: str | Path, catalogue: Catalogue) -> Card:
    """Returns the card of an id, or a card made for a checkpoint directory or a GGUF file.

    Raises `BadInput`, which says what is wrong with the card, directory or file, or suggests the nearest id.
    """
    if not isinstance(model, (str, os.PathLike)):
        raise BadInput(
            f"the model is of type {type(model).__name__}; expected its id, or the path of a checkpoint directory or a "
            "GGUF file"
        )
    listed = {card.id: card for card in catalogue.cards}
    for each in catalogue.bad:
        if each.id == str(model) != "":
            raise BadInput(each.reason)
    if str(model) in listed:
        return listed[str(model)]
    path, kind = on_disk(model)
    if kind == "directory":
        source = {"directory": str(path.resolve())}
        card = Card(str(model), path.resolve().name, "", source)
        if reason := why_unreadable(card):
            raise BadInput(f"{model} cannot be used: {reason}")
        family = family_of(path.resolve())
        return replace(card, family=family.name, tasks=family.tasks)
    if kind == "file":
        if not is_gguf(path):
            check_downloaded(path, path.name)
            raise BadInput(
                f"{path.name} is a file, but not in GGUF format; expected a model id, a checkpoint directory or "
                "a GGUF file"
            )
        from workbench.families.gguf_files import family_of_gguf

        family = family_of_gguf(path)
        return Card(str(model), path.stem, family.name, {"gguf": str(path.absolute())}, tasks=family.tasks)
    if reason := why_unreachable(model):
        raise BadInput(f"{model!s:.300} cannot be read: {reason}")
    sought = str(model).lower()
    repositories = {card.place.lower(): card.id for card in catalogue.cards if card.kind == "hub"}
    suggestions = difflib.get_close_matches(sought, listed, 1)
    suggestions += [repositories[each] for each in difflib.get_close_matches(sought, repositories, 1)]
    hint = f"did you mean {suggestions[0]}?" if suggestions else f"known are {', '.join(listed)}."
    unread = next((f" ({each.reason})" for each in catalogue.bad if not each.id), "")  # the card may be in that list
    raise BadInput(f"there is no model {str(model)!r:.300} and no such directory or GGUF file; {hint}{unread}")


def _is_there(path: Path) -> bool:
    """Returns whether something is at the path, even if reading it is not permitted."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # reading it later reports the error
    return True


def _why_unusable(card: Card) -> str | None:
    """Returns why a user's well-formed card cannot be used, or None; a missing checkpoint may still come."""
    if card.family not in FAMILIES:
        return f"its card names the family {card.family!r:.80}; expected one of {', '.join(FAMILIES)}"
    return why_unreadable(card)
