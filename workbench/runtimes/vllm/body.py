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

MOST = LIMIT * 4 // 3 + (1 << 20)  # bytes: the largest embedding in base64, with the JSON around it
# Bytes that are read and dropped before the answer: a client that is cut off while it sends may never see the answer.
MOST_DROPPED = 4_000_000_000

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class LimitedBody:
    """An ASGI application that wraps another one and passes it no body of more than `most` bytes."""

    def __init__(self, app: App, most: int = MOST):
        self.app, self.most = app, most

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it to the application."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if _claimed(scope) > self.most:
            return await self._refuse(receive, send)
        read, begun, over, more = 0, False, False, True

        async def received() -> Message:
            nonlocal read, over, more
            if over:
                return {"type": "http.disconnect"}
            message = await receive()
            read += len(message.get("body", b""))
            over, more = read > self.most, message.get("more_body", False)
            return {"type": "http.disconnect"} if over else message

        async def sent(message: Message) -> None:
            nonlocal begun
            if begun or not over:  # when a client seems to have gone, this application sends nothing to it
                begun = True
                await send(message)

        try:
            await self.app(scope, received, sent)
        except Exception:
            if begun or not over:
                raise
        if over and not begun:
            await self._refuse(receive, send, more)
        return None

    async def _refuse(self, receive: Receive, send: Send, more: bool = True) -> None:
        """Reads and drops the rest of the body, if there is more of it, and answers 413."""
        passed = 0
        while more and passed < MOST_DROPPED:
            message = await receive()
            passed += len(message.get("body", b""))
            more = message.get("more_body", False)
        sentence = f"the request has more than {size(self.most)}, the most that this server reads; expected less"
        error = {"message": sentence, "type": "BadRequestError", "param": None, "code": 413}
        body = json.dumps({"error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _claimed(scope: Message) -> int:
    """Returns the content length that a request states; 0 if it states none."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
