"""Refuses a request before it reaches the application: one sentence, in a form that the client shows.

Programs get OpenAI's form, the page `{"error": sentence}`. A client of a websocket shows hardly more than the status
of a handshake that fails, so a websocket that lacks a key or comes too often is accepted, told, and closed at once, as
OpenAI's server does. Any other refusal is the answer to the handshake, so that a page of another site reads nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from workbench.core.errors import Busy, WorkbenchError
from workbench.openai_api.errors import close_code, close_reason, error_answer, error_event
from workbench.serving.admission.addresses import route_path
from workbench.serving.admission.subprotocols import chosen_subprotocol

API = ("/v1/", "/mcp", "/metrics")  # what programs ask; keys are for these
OPEN = ("/health", "/ready")
TOLD_STATUSES = (401, 429)  # of refusals after the checks of the server's name and of the origin
TELLING_SECONDS = 5.0  # how long a client that is refused may take to read the sentence


async def refuse(
    scope: Scope, receive: Receive, send: Send, error: WorkbenchError, allowing: Mapping[bytes, bytes]
) -> None:
    """Answers with one sentence.

    Args:
        allowing: headers that let a page of another site read the answer.
    """
    status, reply = error_answer(error)
    if scope["type"] == "websocket":
        await receive()
        if status in TOLD_STATUSES:
            await _tell(scope, send, status, reply["error"])
            return
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": close_reason(str(error))})
            return
    body = json.dumps(
        reply if route_path(scope).startswith((*API, *OPEN)) else {"error": str(error), "detail": str(error)},
        ensure_ascii=False,
    ).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"connection", b"close"),
        *allowing.items(),
    ]
    if isinstance(error, Busy):
        headers.append((b"retry-after", str(max(1, round(error.retry_seconds))).encode()))
    kind = "http.response" if scope["type"] == "http" else "websocket.http.response"
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


def refusal_of_page(error: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the message for a websocket of the page; its scripts read it."""
    return {"type": "refused", "sentence": error["message"]}


async def _tell(scope: Scope, send: Send, status: int, error: Mapping[str, Any]) -> None:
    """Accepts a websocket, sends the error in the form that its client reads, and closes it."""
    message = error_event(error) if route_path(scope).startswith(API) else refusal_of_page(error)
    with contextlib.suppress(OSError, TimeoutError):  # the client left, or does not read
        async with asyncio.timeout(TELLING_SECONDS):
            await send({"type": "websocket.accept", "subprotocol": chosen_subprotocol(scope)})
            await send({"type": "websocket.send", "text": json.dumps(message, ensure_ascii=False)})
            await send(
                {"type": "websocket.close", "code": close_code(status), "reason": close_reason(error["message"])}
            )
