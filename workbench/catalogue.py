"""The models that there are by name: cards that are shipped, the user's own, and those made for a path on this machine.

It says which they are; whether they run here, and running them, is `workbench.registry`'s.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from workbench.cards import SHIPPED, Card, read_cards, user_cards_path
from workbench.errors import BadInput
from workbench.families import FAMILIES, family_of
from workbench.gguf_file import is_gguf


def listed_cards() -> list[Card]:
    """All cards: the shipped ones, then the user's own. Raises `BadInput` for a user file that cannot be read."""
    cards = read_cards(SHIPPED)
    mine = user_cards_path()
    if os.environ.get("WORKBENCH_MODELS") and not mine.is_file():
        raise BadInput(f"WORKBENCH_MODELS names {mine}, and there is no such file")
    if mine.is_file():
        own = read_cards(mine)
        cards = [card for card in cards if card.id not in {other.id for other in own}] + own
    return cards


def find_card(model: str | Path, cards: list[Card]) -> Card:
    """The card of an id, or one made for a checkpoint directory or a GGUF file.

    Raises `BadInput` that suggests the nearest id, or says what is wrong with the directory or the file.
    """
    listed = {card.id: card for card in cards}
    if str(model) in listed:
        return listed[str(model)]
    path, found = on_disk(model)
    if found == "directory":
        family = family_of(path.resolve())
        source = {"directory": str(path.resolve())}
        return Card(str(model), path.resolve().name, family.name, source, tasks=family.tasks)
    if found == "file":
        if not is_gguf(path):
            raise BadInput(
                f"{path.name} is a file, and not in GGUF format; expected a model id, a checkpoint directory or "
                "a GGUF file"
            )
        from workbench.families.gguf_files import family_of_gguf

        family = family_of_gguf(path)
        return Card(str(model), path.stem, family.name, {"gguf": str(path.absolute())}, tasks=family.tasks)
    near = difflib.get_close_matches(str(model), listed, 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(listed)}."
    raise BadInput(f"there is no model {str(model)!r} and no such directory or GGUF file; {hint}")


def on_disk(model: str | Path) -> tuple[Path, str | None]:
    """The path that a model's name may be, and whether it is a directory or a file; no name is too odd to ask for."""
    path = Path(model)
    try:
        path = path.expanduser()
        if str(model) == "":  # no name is not the current folder
            return path, None
        return path, "directory" if path.is_dir() else "file" if path.is_file() else None
    except (OSError, RuntimeError, ValueError):  # longer than a path may be, of a user who is not there, with a null
        return path, None


def unknown_family(card: Card) -> str | None:
    """What is wrong with the family that a user's card names, or None."""
    if card.family in FAMILIES:
        return None
    return f"its card names the family {card.family!r}, and there are only {', '.join(FAMILIES)}"
