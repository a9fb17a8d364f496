"""HTTP/1.1 for the servers: uvicorn's protocol on h11, with limits for the header of a request.

The other parser that uvicorn knows, httptools, keeps a header of any length in memory, and blocks the server while it
grows. Neither limits the time.
"""

from __future__ import annotations

import asyncio
import functools
import re
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LARGEST_HEADER = 1 << 20  # bytes; as much as the limit `header_kb` may be, which is checked when a header is complete
_NAMED = re.compile(rb"https?://[^/?]*", re.IGNORECASE)
HEADER_SECONDS = 60.0  # from a new connection, or the first byte of a header, to the end of the header


class _Connection(h11.Connection):
    """Reads requests. A target with a name, as `http://localhost/health`, becomes its path (RFC 9112, 3.2.2)."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and (named := _NAMED.match(event.target)):
            target = b"/" + event.target[named.end() :].removeprefix(b"/")
            headers = list(event.headers.raw_items())
            return h11.Request(method=event.method, target=target, headers=headers, http_version=event.http_version)
        return event


@functools.cache
def _completing(protocol: Any) -> Any:
    """Returns a protocol for websockets to which a handshake that was refused with a body is complete.

    uvicorn 0.54 takes it for one without an answer, and logs an error, so a client could fill the log.
    """

    class Completing(protocol):
        async def send(self, message: Any) -> None:
            await super().send(message)
            if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
                self.handshake_complete = True

    return Completing


class BoundedHttpProtocol(H11Protocol):
    """A connection that is closed if the header of a request grows too large, or does not come in time."""

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        self.conn = _Connection(h11.SERVER, LARGEST_HEADER)
        self.config.ws_per_message_deflate = False  # zeros would become a thousand times as many, and sound stays large
        websockets: Any = self.ws_protocol_class
        if websockets is not None:
            self.ws_protocol_class = _completing(websockets)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _wait_for_header(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
