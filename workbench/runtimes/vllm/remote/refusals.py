"""Errors of a server, each in one sentence with the server's own reason.

This file sends no requests; `client` calls it with the failures that it met.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from workbench.core.errors import BadInput, SessionDied, Unavailable, WorkbenchError
from workbench.core.settings import Server

MAX_REASON_CHARACTERS = 300


def refusal_error(server: Server, status: int, body: bytes) -> WorkbenchError:
    """Returns the error for an answer with a status other than 200."""
    reason = _reason(status, body)
    if status in (401, 403):
        key = f"the key in {server.key} is not one that it takes" if server.key else "its card names no key"
        return Unavailable(
            f"the server {server.url} refuses access ({status}: {reason}), and {key}; put its key into an environment "
            "variable and the variable's name into the card's source as key"
        )
    if status in (429, 503):
        return Unavailable(f"the server {server.url} takes no more requests now ({status}: {reason}); try again later")
    if 400 <= status < 500:
        return BadInput(f"the server {server.url} refuses the request ({status}): {reason}")
    return WorkbenchError(f"the server {server.url} failed ({status}): {reason}")


def stream_error(server: Server, error: Any) -> WorkbenchError:
    """Returns the error for a failure that the server reports in the middle of a stream."""
    status = error.get("code") if isinstance(error, Mapping) else None
    status = status if isinstance(status, int) else 500
    failure = refusal_error(server, status, json.dumps({"error": error}).encode())
    if status >= 500:
        return SessionDied(f"{failure}; the answer is incomplete, and the next call asks again")
    return failure


def unreachable_error(server: Server, model: str, reason: str) -> WorkbenchError:
    """Returns the error for a server that cannot be reached."""
    return Unavailable(
        f"the server {server.url} of {model} cannot be reached: {reason}; start it there with vllm serve, or correct "
        "the address in the model's card"
    )


def connection_error(server: Server, reason: str) -> WorkbenchError:
    """Returns the error for a connection that was lost before the answer was complete."""
    return SessionDied(f"the server {server.url} {reason} before its answer was complete; the next call asks again")


def unexpected_answer_error(server: Server, description: str) -> WorkbenchError:
    """Returns the error for an answer that is not in OpenAI's format."""
    return WorkbenchError(
        f"the server {server.url} answers {description}; expected an OpenAI-compatible server of vLLM"
    )


def shortened(text: str) -> str:
    """Returns the text on one line, shortened to a fixed length."""
    line = " ".join(text[: 10 * MAX_REASON_CHARACTERS].split())
    return line if len(line) <= MAX_REASON_CHARACTERS else line[:MAX_REASON_CHARACTERS] + "..."


def _reason(status: int, body: bytes) -> str:
    """Returns the server's message, in one of the usual formats; else the meaning of the status."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "no reason given"
    try:
        message: Any = json.loads(body)
    except (ValueError, RecursionError):
        text = body[: 10 * MAX_REASON_CHARACTERS].decode("utf-8", "replace")
        return phrase if "<html" in text.lower() or not text.strip() else shortened(text)
    for key in ("error", "message", "detail"):
        if isinstance(message, Mapping) and message.get(key):
            message = message[key]
    return shortened(message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)) or phrase
