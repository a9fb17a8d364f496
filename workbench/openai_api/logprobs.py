"""The log-probabilities of tokens in OpenAI's form, from the alternatives that a session returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.openai_api.errors import Refusal
from workbench.session.values import Alternative, Piece

REQUESTED_ALTERNATIVES = (
    20  # alternatives that a session is asked for, so that a token that was drawn is most likely among them
)
UNLIKELY = -9999.0  # OpenAI's value for a token that is not among the likeliest


def read_chat_logprobs(value: Any, name: str) -> Any:
    """Returns the value of `logprobs` (true or false) or `top_logprobs` (0 to 20) of a chat."""
    if name == "logprobs":
        if not isinstance(value, bool):
            raise Refusal(f"logprobs is {value!r:.80}; expected true or false", name, "invalid_type")
        return value
    return _count(value, name, REQUESTED_ALTERNATIVES)


def read_completion_logprobs(value: Any) -> int | None:
    """Returns the number of alternatives that a completion asks for; None for no log-probabilities at all."""
    return None if value is None else _count(value, "logprobs", REQUESTED_ALTERNATIVES)


def _count(value: Any, name: str, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise Refusal(f"{name} is {value!r:.80}; expected a whole number from 0 to {maximum}", name, "invalid_value")
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
    return {**_token_entry(chosen), "top_logprobs": [_token_entry(each) for each in piece.alternatives[:top]]}


def completion_logprobs(pieces: Sequence[Piece], top: int, offset: int = 0) -> dict[str, Any]:
    """Returns `logprobs` of a completion, for the pieces that have one token each.

    Args:
        offset: the characters of the completion before these pieces.
    """
    lists: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    at = offset
    for piece in pieces:
        if (chosen := chosen_of(piece)) is not None:
            lists["tokens"].append(chosen.text)
            lists["token_logprobs"].append(chosen.logprob)
            lists["top_logprobs"].append({each.text: each.logprob for each in piece.alternatives[:top]})
            lists["text_offset"].append(at)
        at += len(piece.text)
    return lists


def _token_entry(each: Alternative) -> dict[str, Any]:
    return {"token": each.text, "logprob": each.logprob, "bytes": list(each.text.encode())}
