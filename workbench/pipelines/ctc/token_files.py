"""Reads the list of tokens that belongs to logits, and finds the blank in it. This file knows no logits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.families.vocabulary import NUMBERED, read_token_list

_SPACES = re.compile(r"[ \t\r\n\f\v]")
_HELPER = re.compile(r"#[0-9]+")  # symbols that k2 adds behind the tokens for its graphs; no network has them


def read_tokens(path: str | Path) -> tuple[str, ...]:
    """Returns the tokens in a file (see `workbench.families.vocabulary.read_token_list`) in the order of their ids.

    Raises `BadInput` for any other file, and as `check_tokens` does.
    """
    path = Path(path)
    tokens = read_token_list(path).pieces
    if all(NUMBERED.fullmatch(token) for token in tokens):
        raise BadInput(
            f"the lines of {path.name} are tokens with ids, which are not 0 to {len(tokens) - 1}, each once; "
            "expected that, or no ids"
        )
    check_tokens(tokens, path.name)
    return tokens


def check_tokens(tokens: Sequence[str], where: str) -> None:
    """Raises `BadInput` unless each token is a text without spaces, or a single space, and occurs once."""
    if not tokens:
        raise BadInput(f"{where} is empty; expected a token for each column of the logits, the blank included")
    ids: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if not isinstance(token, str) or not token or (_SPACES.search(token) and token != " "):
            raise BadInput(
                f"token {number} of {where}, counted from 0, is {token!r:.80}; expected a text without spaces"
            )
        if not _is_text(token):
            raise BadInput(
                f"token {number} of {where}, counted from 0, is {token!r:.80}, with a character that no text has; "
                "expected UTF-8 text"
            )
        if token in ids:
            raise BadInput(f"tokens {ids[token]} and {number} of {where} are both {token!r:.80}; expected each once")
        ids[token] = number


def _is_text(token: str) -> bool:
    """Returns whether a token has no NUL and no half of a surrogate pair, which JSON may name."""
    return not any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in token)


def tokens_for(tokens: Sequence[str], width: int, where: str, source: str) -> tuple[str, ...]:
    """Returns one token for each of `width` columns of logits.

    If there are too many tokens, symbols such as `#0` at the end are left out; k2 adds them for its graphs.

    Args:
        where: the name of the logits, for messages.
        source: the name of the list.

    Raises `BadInput` if there are more or fewer tokens.
    """
    count = len(tokens)
    while count > width and _HELPER.fullmatch(tokens[count - 1]):
        count -= 1
    if count != width:
        raise BadInput(
            f"{where} is {width} wide and {source} has {len(tokens)} tokens; expected a column for each, the blank "
            "included"
        )
    return tuple(tokens[:count])


def blank_of(blank: str | int, tokens: Sequence[str]) -> int:
    """Returns the index of the blank, which is given as an index or as its name; a whole number is an index.

    Raises `BadInput` if there is no such token.
    """
    text = str(blank)
    if re.fullmatch(r"[+-]?[0-9]+", text):
        index = int(text) if len(text) < 12 else -1
        if not 0 <= index < len(tokens):
            raise BadInput(f"the blank is {text:.20}; expected 0 to {len(tokens) - 1}, or a token's name")
        return index
    if text not in tokens:
        raise BadInput(
            f"the blank is {text!r:.80}, which is none of the {len(tokens)} tokens; expected its index or name"
        )
    return tokens.index(text)
