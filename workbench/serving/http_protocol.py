"""HTTP/1.1 for the servers: uvicorn's protocol on h11, with limits for the header of a request and for its chunks.

The other parser that uvicorn knows, httptools, keeps a header of any length in memory, and blocks the server while it
grows. Neither limits the time.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from workbench.serving.unread_answers import EndsIfUnread
from workbench.serving.websocket_protocol import bounded_websockets

LARGEST_HEADER = 1 << 20  # bytes; as much as the limit `header_kb` may be, which is checked when a header is complete
_NAMED = re.compile(rb"https?://[^/?]*", re.IGNORECASE)
SMALL_CHUNK, MAX_SMALL_CHUNKS = 64, 10_000  # bytes, and in one body: each takes as long to read as a large one
HEADER_SECONDS = 60.0  # from a new connection, or the first byte of a header, to the end of the header


class _Connection(h11.Connection):
    """Reads requests. A target with a name, as `http://localhost/health`, becomes its path (RFC 9112, 3.2.2)."""

    _small_chunks = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._small_chunks = 0
        elif isinstance(event, h11.Data) and len(event.data) < SMALL_CHUNK:
            self._small_chunks += 1
            if self._small_chunks > MAX_SMALL_CHUNKS:
                raise h11.RemoteProtocolError("the body comes in too many small chunks")
        if isinstance(event, h11.Request) and (named := _NAMED.match(event.target)):
            target = b"/" + event.target[named.end() :].removeprefix(b"/")
            headers = list(event.headers.raw_items())
            return h11.Request(method=event.method, target=target, headers=headers, http_version=event.http_version)
        return event


class BoundedHttpProtocol(EndsIfUnread, H11Protocol):
    """A connection that is closed if the header of a request grows too large, or does not come in time, if its body
    comes in too many small chunks, or if its client does not read the answer.
    """

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        self.conn = _Connection(h11.SERVER, LARGEST_HEADER)
        self.config.ws_per_message_deflate = False  # zeros would become a thousand times as many, and sound stays large
        websockets: Any = self.ws_protocol_class
        if websockets is not None:
            self.ws_protocol_class = bounded_websockets(websockets)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_header()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # the answer has begun, and has no place for another status
            self.transport.close()

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
