"""Reads the list of tokens that belongs to logits, and finds the blank in it. This file knows no logits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.families.vocabularies.funasr import NUMBERED, read_token_list

_SPACES = re.compile(r"[ \t\r\n\f\v]")
_BLANKS = re.compile(r"<(blk|blank|ctc|ctc_blank)>|\[(blank|blk)\]", re.IGNORECASE)  # whatever else is in the list
_PADS = ("<pad>", "[PAD]")  # the blank of wav2vec2 in transformers
_FAIRSEQ = "<s>"  # as the first token: the blank of wav2vec2 in fairseq, whose <pad> is another token
_FIRST_BLANKS = re.compile(r"<(s|b|eps|epsilon)>|blank|blk|eps|epsilon|pad|[-_~*#@εϵ∅]", re.IGNORECASE)  # as token 0
MISSING_BLANK = "; if the list lacks the blank, add it at its place, which is the end for NeMo"
_HELPER = re.compile(r"#[0-9]+")  # symbols that k2 adds behind the tokens for its graphs; no network has them


def read_tokens(path: str | Path) -> tuple[str, ...]:
    """Returns the tokens in a file in the order of their ids (see `workbench.families.vocabularies.funasr`).

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
            "included" + (MISSING_BLANK if width == count + 1 and not _named_blanks(tokens) else "")
        )
    return tuple(tokens[:count])


def blank_of(blank: str | int | None, tokens: Sequence[str]) -> int:
    """Returns the index of the blank, which is given as an index or as its name; a whole number is an index.

    None stands for the token whose name says that it is the blank.

    Raises `BadInput` if there is no such token, or if the names do not decide which one it is.
    """
    if blank is None:
        return _blank_by_name(tokens)
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


def _blank_by_name(tokens: Sequence[str]) -> int:
    named = _named_blanks(tokens)
    if named and tokens[named[0]] in _PADS and tokens[0] == _FAIRSEQ:
        named = [0, *named]
    if len(named) > 1:
        names = " and ".join(repr(tokens[number]) for number in named[:3])
        raise BadInput(f"the blank may be each of the tokens {names}; expected its index or name (--blank)")
    if named:
        return named[0]
    if tokens and not _FIRST_BLANKS.fullmatch(tokens[0]):
        raise BadInput(
            f"no token is called <blk> or <blank>, and the first of the {len(tokens)} tokens is {tokens[0]!r:.40}; "
            "expected the index or the name of the blank (--blank)"
        )
    return 0


def _named_blanks(tokens: Sequence[str]) -> list[int]:
    return [number for number, token in enumerate(tokens) if _BLANKS.fullmatch(token)] or [
        number for number, token in enumerate(tokens) if token in _PADS
    ]
