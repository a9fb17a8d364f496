"""Errors in the form of OpenAI's API: `{"error": {"message", "type", "param", "code"}}` with a status of HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from workbench.core.errors import BadInput, Busy, DiskFull, NoRoom, Refused, Unavailable, WorkbenchError

STATUSES: Mapping[type[WorkbenchError], int] = {
    BadInput: 400,
    Refused: 403,
    Busy: 429,
    DiskFull: 507,  # before the error that it is a kind of
    Unavailable: 503,
    NoRoom: 507,
}
# The codes with which a websocket ends, by the status that a request would get, as in IANA's registry.
CLOSE_CODES: Mapping[int, int] = {401: 3000, 403: 3003, 408: 3008, 429: 1013, 503: 1013}
POLICY_VIOLATION, INTERNAL_ERROR = 1008, 1011  # for all other mistakes of a client, and faults of the server
MAX_REASON_BYTES = 123  # bytes (RFC 6455, 5.5)
INVALID, SERVER = "invalid_request_error", "server_error"  # OpenAI's types of errors


class Refusal(BadInput):
    """The error for a request that cannot be answered.

    Args:
        message: one sentence.
        param: the field of the request that is wrong.
        code: OpenAI's name for the kind of mistake.
        status: of HTTP.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400):
        super().__init__(message)
        self.param, self.code, self.status = param, code, status


def error_answer(error: WorkbenchError) -> tuple[int, Mapping[str, Any]]:
    """Returns (the status of HTTP, the body) for an error."""
    param = code = None
    if isinstance(error, Refusal):
        status, param, code = error.status, error.param, error.code
    else:
        status = next((each for kind, each in STATUSES.items() if isinstance(error, kind)), 500)
        code = "rate_limit_exceeded" if status == 429 else None
    kind = INVALID if status < 500 else SERVER
    return status, {"error": {"message": str(error), "type": kind, "param": param, "code": code}}


def error_event(error: Mapping[str, Any], event_id: Any = None) -> dict[str, Any]:
    """Returns the event of the realtime API for the error in a body.

    Args:
        event_id: the client's id of the event that was refused.
    """
    return {"type": "error", "event_id": new_event_id(), "error": {**error, "event_id": event_id}}


def new_event_id() -> str:
    """Returns an id for an event of the server."""
    return f"event_{secrets.token_hex(12)}"


def close_code(status: int) -> int:
    """Returns the code with which a websocket ends after an error with this status of HTTP."""
    return CLOSE_CODES.get(status, INTERNAL_ERROR if status >= 500 else POLICY_VIOLATION)


def close_reason(sentence: str) -> str:
    """Returns the sentence, or as much of it as the end of a websocket may state."""
    content = sentence.encode()
    if len(content) <= MAX_REASON_BYTES:
        return sentence
    return content[: MAX_REASON_BYTES - 3].decode(errors="ignore") + "…"
