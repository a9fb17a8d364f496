"""Errors in the form of OpenAI's API: `{"error": {"message", "type", "param", "code"}}` with a status of HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.core.errors import BadInput, Unavailable, WorkbenchError

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
    elif isinstance(error, BadInput):
        status = 400
    else:
        status = 503 if isinstance(error, Unavailable) else 500
    kind = INVALID if status < 500 else SERVER
    return status, {"error": {"message": str(error), "type": kind, "param": param, "code": code}}
