"""Writes cards of models into a user's own list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

AddCard = Callable[..., None]


def card_writer(file: Path) -> AddCard:
    """Returns a function that appends a card to the list in the file."""

    def add(name: str, directory: Path | str, family: str = "sensevoice", extra: str = "") -> None:
        with file.open("a", encoding="utf-8") as cards:
            cards.write(
                f'[[model]]\nid = "{name}"\nfamily = "{family}"\nsource = {{ directory = "{directory}" }}\n{extra}\n'
            )

    return add
