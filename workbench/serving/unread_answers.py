"""Ends the connections of clients that do not read what the server sends.

The web server waits for such a client without an end: an answer that was written stays in memory, also after the
connection has been closed on this side.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

ANSWER_SECONDS = 60.0  # in which a client has to read something while bytes wait for it

if TYPE_CHECKING:
    _Protocol = asyncio.Protocol
else:
    _Protocol = object


class EndsIfUnread(_Protocol):
    """A part of a protocol class, before the web server's own class."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # then writing pauses exactly while bytes wait

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        waiting_bytes = self.transport.get_write_buffer_size()
        self._unread_timer = self.loop.call_later(ANSWER_SECONDS, self._look, waiting_bytes)

    def _look(self, waiting_bytes: int) -> None:
        if self.transport.get_protocol() is not self:  # it became a websocket, which watches itself
            return
        if self.transport.get_write_buffer_size() < waiting_bytes:
            self._watch()
        else:
            self.transport.abort()

    def _stop_watching(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
