"""Sends the answer to a request part by part, while the work goes on.

A stream begins when its first parts are there. Until then, the request can be refused with a status, and its work stops
if the client goes away. The slot of the call is free, and the request is counted, before the client sees the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from starlette.types import Receive, Scope, Send

from workbench.serving.routes.request_work import CLIENT_CLOSED_REQUEST, unless_gone, wait_for_disconnect
from workbench.serving.service import Call, error_reply

EVENTS = "text/event-stream"
Headers = Callable[[], Mapping[str, str]]
"""Returns further headers of a stream; called when its first parts are there."""


async def streamed(
    call: Call,
    parts: AsyncGenerator[bytes, None],
    before: int = 1,
    media_type: str = EVENTS,
    headers: Headers = dict,
) -> Streamed:
    """Returns the response that sends the parts of an answer.

    Args:
        parts: the parts in their order; empty ones are not sent. They are closed at the end, or if the client leaves.
        before: how many parts come before the first byte is sent; after them, hardly anything can be refused.

    Raises what `parts` raises before that, and `ClientGone` if the client does not wait for them.
    """

    async def first_parts() -> list[bytes]:
        found: list[bytes] = []
        while len(found) < before and (part := await anext(parts, None)) is not None:
            found.append(part)
        return found

    try:
        first = await unless_gone(call.request, first_parts())
    except BaseException:
        await parts.aclose()
        raise
    call.last()
    return Streamed(call, first, parts, media_type, headers())


class Streamed:
    """The response with a stream.

    If the work fails in the middle, a stream of events ends with the error. Any other stream is broken off, so that no
    client takes it for complete.
    """

    status_code = 200

    def __init__(
        self,
        call: Call,
        first: Sequence[bytes],
        following: AsyncGenerator[bytes, None],
        media_type: str,
        headers: Mapping[str, str],
    ):
        self._call, self._first, self._following = call, first, following
        self._tells_errors = media_type == EVENTS
        self._ended = self._broken = False
        all_headers = {"content-type": media_type, "cache-control": "no-cache", "x-accel-buffering": "no", **headers}
        self.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in all_headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the parts as they come."""
        sending, leaving = asyncio.create_task(self._send(send)), asyncio.create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                with contextlib.suppress(OSError):  # the client went away just now
                    sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._following.aclose()
            self._end(CLIENT_CLOSED_REQUEST)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with contextlib.aclosing(self._all_parts()) as parts:
            async for part in parts:
                if part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        if not self._broken:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _all_parts(self) -> AsyncGenerator[bytes, None]:
        try:
            for part in self._first:
                yield part
            async for part in self._following:
                yield part
        except Exception as error:
            status, body = error_reply(error)
            self._end(status)
            if self._tells_errors:
                yield encode_events([dict(body)])
            else:
                self._broken = True
        else:
            self._end(self.status_code)

    def _end(self, status: int) -> None:
        if not self._ended:
            self._ended = True
            self._call.end(status)


def encode_events(events: list[dict[str, Any]]) -> bytes:
    """Returns server-sent events, each with its type as OpenAI's API names it."""
    headers = (f"event: {each['type']}\n" if "type" in each else "" for each in events)
    lines = (f"data: {json.dumps(each, ensure_ascii=False, allow_nan=False)}\n\n" for each in events)
    return "".join(name + line for name, line in zip(headers, lines)).encode()
