"""Checks that a text holds whole characters. A damaged JSON escape, for example, gives half a pair of surrogates.
Python keeps it, but no tokenizer takes it.
"""

from __future__ import annotations

from workbench.core.errors import BadInput


def check_characters(text: str, what: str) -> None:
    """Raises `BadInput` if a text holds half a character; `what` names the text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(f"{what} holds half a character; expected a text that can be written as UTF-8") from error
