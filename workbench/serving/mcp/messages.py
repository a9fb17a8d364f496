"""Checks a message before the package `mcp` reads it, and answers an invalid one with one sentence in JSON-RPC's form.

The package would answer with many lines that name its classes, and would give a request with an invalid `id` no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from workbench.core.errors import BadInput
from workbench.serving.routes.bodies import check_values, parsed

PARSE_ERROR, INVALID_REQUEST = -32700, -32600  # codes of JSON-RPC 2.0
EXPECTED = 'expected a JSON-RPC message such as {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'


class InvalidMessage(BadInput):
    """A body that is not one message of JSON-RPC, with JSON-RPC's code for it."""

    def __init__(self, sentence: str, code: int = INVALID_REQUEST):
        super().__init__(f"{sentence}; {EXPECTED}")
        self.code = code

    def answer(self) -> JSONResponse:
        """Returns the answer, with status 400. No request is known, so `id` is null."""
        error = {"code": self.code, "message": str(self)}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)


def check_message(content_type: str, body: bytes) -> None:
    """Raises `InvalidMessage` for a body that is not one JSON-RPC message; `Refusal` for one with too many values."""
    check_values(body)
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json":
        raise InvalidMessage(f"the content type is {kind or 'missing'!s:.80}, not application/json")
    try:
        message = parsed(body)
    except ValueError as error:
        raise InvalidMessage(f"the body of the request is not JSON ({error!s:.100})", PARSE_ERROR) from None
    if isinstance(message, list):
        raise InvalidMessage("the body of the request is a list, and several messages at once are not taken")
    if not isinstance(message, Mapping):
        raise InvalidMessage("the body of the request is not a JSON object")
    _check_fields(message)


def _check_fields(message: Mapping[str, Any]) -> None:
    if message.get("jsonrpc") != "2.0":
        raise InvalidMessage(f"jsonrpc is {_shown(message, 'jsonrpc')}, not '2.0'")
    if "method" in message or "id" not in message:
        if not isinstance(message.get("method"), str):
            raise InvalidMessage(f"method is {_shown(message, 'method')}, not a text")
        if not isinstance(message.get("params"), (Mapping, type(None))):
            raise InvalidMessage(f"params is {_shown(message, 'params')}, not an object")
    elif not isinstance(message.get("result"), Mapping) and not _is_error(message.get("error")):
        raise InvalidMessage("method is missing, and result and error are not those of an answer")
    number = message.get("id", 0)
    if isinstance(number, bool) or not isinstance(number, (int, str)):
        raise InvalidMessage(f"id is {_shown(message, 'id')}, neither a whole number nor a text")


def _is_error(error: Any) -> bool:
    return isinstance(error, Mapping) and isinstance(error.get("code"), int) and isinstance(error.get("message"), str)


def _shown(message: Mapping[str, Any], name: str) -> str:
    return f"{message[name]!r:.80}" if name in message else "missing"
