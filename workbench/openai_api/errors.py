"""Errors in the form of OpenAI's API: `{"error": {"message", "type", "param", "code"}}` with a status of HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.core.errors import BadInput, Busy, NoRoom, Refused, Unavailable, WorkbenchError

STATUSES: Mapping[type[WorkbenchError], int] = {
    BadInput: 400,
    Refused: 403,
    Busy: 429,
    Unavailable: 503,
    NoRoom: 507,
}
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
