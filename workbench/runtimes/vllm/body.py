"""Refuses requests with a large body before vLLM's server reads them: vLLM would hold a whole body in memory, three
times over.

`vllm serve ... --middleware workbench.runtimes.vllm.body.LimitedBody` refuses larger requests with status 413 and
stores nothing of them. This file imports neither vllm nor torch.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from workbench.embeddings import LIMIT
from workbench.system.memory import size

MAX_BODY = LIMIT * 4 // 3 + (1 << 20)  # bytes: the largest embedding in base64, with the JSON around it
# Bytes that are read and dropped before the answer: a client that is cut off while it sends may never see the answer.
MAX_DROPPED = 4_000_000_000

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class LimitedBody:
    """An ASGI application that wraps another one and passes it no body of more than `maximum` bytes."""

    def __init__(self, app: App, maximum: int = MAX_BODY):
        self.app, self.maximum = app, maximum

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it to the application."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if _stated_length(scope) > self.maximum:
            return await self._refuse(receive, send)
        size, responded, too_large, more_body = 0, False, False, True

        async def receive_limited() -> Message:
            nonlocal size, too_large, more_body
            if too_large:
                return {"type": "http.disconnect"}
            message = await receive()
            size += len(message.get("body", b""))
            too_large, more_body = size > self.maximum, message.get("more_body", False)
            return {"type": "http.disconnect"} if too_large else message

        async def send_response(message: Message) -> None:
            nonlocal responded
            if responded or not too_large:  # when a client seems to have gone, this application sends nothing to it
                responded = True
                await send(message)

        try:
            await self.app(scope, receive_limited, send_response)
        except Exception:
            if responded or not too_large:
                raise
        if too_large and not responded:
            await self._refuse(receive, send, more_body)
        return None

    async def _refuse(self, receive: Receive, send: Send, more_body: bool = True) -> None:
        """Reads and drops the rest of the body, if there is more of it, and answers 413."""
        dropped = 0
        while more_body and dropped < MAX_DROPPED:
            message = await receive()
            dropped += len(message.get("body", b""))
            more_body = message.get("more_body", False)
        sentence = f"the request has more than {size(self.maximum)}, the most that this server reads; expected less"
        error = {"message": sentence, "type": "BadRequestError", "param": None, "code": 413}
        body = json.dumps({"error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _stated_length(scope: Message) -> int:
    """Returns the content length that a request states; 0 if it states none."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
