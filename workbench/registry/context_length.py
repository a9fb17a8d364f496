"""Checks the requested number of tokens against a model's context, as far as possible before the model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.families.language.directory import is_language_directory, read_language_config
from workbench.registry.cards import Card
from workbench.registry.sources import local_checkpoint

NAME = "max_new_tokens"


def check_context(card: Card, options: Mapping[str, Any]) -> None:
    """Raises `BadInput` if the user asks for more new tokens than the context of the language model holds.

    It downloads nothing: for a model that is not on this machine, or on a server, the check is skipped. The code that
    reads the prompt checks the space that it leaves.
    """
    new_tokens = options.get(NAME)
    if not isinstance(new_tokens, int) or card.kind in ("gguf", "server"):
        return
    checkpoint = local_checkpoint(card)
    language = _language_directory(checkpoint) if checkpoint else None
    if language is None:
        return
    context = read_language_config(language).context
    if new_tokens > context:
        raise BadInput(
            f"option {NAME} of {card.id} is {new_tokens}; expected at most {context}, the context of {language.name}"
        )


def _language_directory(directory: Path) -> Path | None:
    """Returns the directory of the language model: the checkpoint itself, or one inside it."""
    try:
        inside = sorted(path for path in directory.iterdir() if path.is_dir())
    except OSError:
        return None  # opening the model reports the error
    return next((each for each in (directory, *inside) if is_language_directory(each)), None)
