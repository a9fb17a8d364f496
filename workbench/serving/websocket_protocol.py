"""Websockets for the servers: uvicorn's protocol, with a limit for control frames and small fragments of messages.

uvicorn refuses messages that are too large, and reads one at a time. But it accepts any number of pings, pongs and
fragments.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from workbench.serving.unread_answers import EndsIfUnread

LARGE_FRAGMENT = 512  # bytes; a fragment of at least as many does not count
SLICE = 1 << 14  # bytes that are parsed before the end of a connection is noticed
MAX_AT_ONCE, MAX_PER_SECOND = 200, 50  # frames that count, in a moment and in the long run
BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
FLOOD, INVALID_TEXT = 1008, 1007  # codes with which a connection is closed (RFC 6455, 7.4.1)


@functools.cache
def bounded_websockets(protocol: Any) -> Any:
    """Returns uvicorn's protocol for websockets with these changes:

    - A client that sends many pings, pongs or small fragments of messages loses its connection.
    - An invalid text ends the connection, and the log stays empty.
    - A client that does not read loses its connection.
    - A client counts as present while the server does not read: its answer to a ping may wait among its messages.
    - A handshake with a header that the library for websockets refuses, such as a line of more than 8 kB, gets its
      refusal and loses its connection. uvicorn 0.54 leaves both out, so the connection would stay open.
    - A handshake that was refused with a body is complete. uvicorn 0.54 takes it for one without an answer, and logs
      an error, so a client could fill the log.
    """

    class Bounded(EndsIfUnread, protocol):
        close_sent: bool
        _count, _counted_at = 0.0, 0.0  # of recent frames, and when they were counted

        def data_received(self, data: bytes) -> None:
            for start in range(0, len(data), SLICE):
                if self.transport.is_closing():  # what follows the end of a connection is not read
                    return
                super().data_received(data[start : start + SLICE])
                if self.conn.handshake_exc is not None and not self.handshake_initiated:
                    self.transport.write(b"".join(self.conn.data_to_send()) or BAD_HANDSHAKE)
                    self.transport.close()

        async def send(self, message: Any) -> None:
            await super().send(message)
            if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
                self.handshake_complete = True

        def handle_ping(self, *event: Any) -> None:
            if self._accepts_frame():
                super().handle_ping(*event)

        def handle_pong(self, event: Any) -> None:
            if self._accepts_frame():
                super().handle_pong(event)

        def handle_cont(self, event: Any) -> None:
            if len(event.data) >= LARGE_FRAGMENT or self._accepts_frame():
                super().handle_cont(event)

        def send_receive_event_to_app(self, *event: Any) -> None:
            if self.curr_msg_data_type == "text" and not _is_text(self.frames):
                self._fail(INVALID_TEXT, "a text is not UTF-8")
            else:
                super().send_receive_event_to_app(*event)

        def keepalive_timeout(self) -> None:
            if self.read_paused:
                self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
            else:
                super().keepalive_timeout()

        def _accepts_frame(self) -> bool:
            """Counts a control frame or a small fragment; closes the connection of a client that sends too many."""
            now = time.monotonic()
            self._count = max(0.0, self._count - MAX_PER_SECOND * (now - self._counted_at)) + 1
            self._counted_at = now
            if self._count > MAX_AT_ONCE:
                self._fail(FLOOD, "too many pings or small pieces of messages")
            return self._count <= MAX_AT_ONCE

        def _fail(self, code: int, reason: str) -> None:
            if not self.close_sent and not self.transport.is_closing():
                self.conn.fail(code, reason)
                self.transport.write(b"".join(self.conn.data_to_send()))
                self.close_sent = True
                self.transport.close()

    return Bounded


def _is_text(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True
