"""The log-probabilities of tokens in OpenAI's form, from the alternatives that a session returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.openai_api.errors import Refusal
from workbench.session.values import Alternative, Piece

ASKED = 20  # alternatives that a session is asked for, so that a token that was drawn is most likely among them
UNLIKELY = -9999.0  # OpenAI's value for a token that is not among the likeliest


def read_chat_logprobs(value: Any, name: str) -> Any:
    """Returns the value of `logprobs` (true or false) or `top_logprobs` (0 to 20) of a chat."""
    if name == "logprobs":
        if not isinstance(value, bool):
            raise Refusal(f"logprobs is {value!r:.80}; expected true or false", name, "invalid_type")
        return value
    return _count(value, name, ASKED)


def read_completion_logprobs(value: Any) -> int | None:
    """Returns the number of alternatives that a completion asks for; None for no log-probabilities at all."""
    return None if value is None else _count(value, "logprobs", ASKED)


def _count(value: Any, name: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise Refusal(f"{name} is {value!r:.80}; expected a whole number from 0 to {most}", name, "invalid_value")
    return value


def chosen_of(piece: Piece) -> Alternative | None:
    """Returns the token of a piece with its log-probability; None for a piece of no token or of several."""
    if len(piece.tokens) != 1 or not piece.alternatives:
        return None
    [number] = piece.tokens
    alternative = next((each for each in piece.alternatives if each.id == number), None)
    return alternative or Alternative(number, piece.text, UNLIKELY)


def chat_entry(piece: Piece, top: int) -> dict[str, Any] | None:
    """Returns the entry of a piece in `logprobs.content` of a chat."""
    chosen = chosen_of(piece)
    if chosen is None:
        return None
    return {**_plain(chosen), "top_logprobs": [_plain(each) for each in piece.alternatives[:top]]}


def completion_logprobs(pieces: Sequence[Piece], top: int, shown: int = 0) -> dict[str, Any]:
    """Returns `logprobs` of a completion, for the pieces that have one token each.

    Args:
        shown: the characters of the completion before these pieces.
    """
    found: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    at = shown
    for piece in pieces:
        if (chosen := chosen_of(piece)) is not None:
            found["tokens"].append(chosen.text)
            found["token_logprobs"].append(chosen.logprob)
            found["top_logprobs"].append({each.text: each.logprob for each in piece.alternatives[:top]})
            found["text_offset"].append(at)
        at += len(piece.text)
    return found


def _plain(each: Alternative) -> dict[str, Any]:
    return {"token": each.text, "logprob": each.logprob, "bytes": list(each.text.encode())}
