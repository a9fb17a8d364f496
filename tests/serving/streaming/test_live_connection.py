"""A client of a websocket that does not read: it is not heard meanwhile, and counts as gone after a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.websockets import WebSocketDisconnect

from tests.support.coroutines import finished
from workbench.serving.streaming import live_connection
from workbench.serving.streaming.live_connection import MOST_UNSENT, Connection

MESSAGE = {"type": "websocket.receive", "text": "{}"}


class DeafSocket:
    """A websocket with endless messages of a client that reads nothing until `reads` is set."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.sent: list[str] = []
        self.closed = False

    async def accept(self) -> None: ...

    async def close(self, code: int, reason: str) -> None:
        self.closed = code == 1000 and not reason

    async def receive(self) -> dict[str, Any]:
        return dict(MESSAGE)

    async def send_text(self, text: str) -> None:
        await self.reads.wait()
        self.sent.append(text)


def test_client_is_not_heard_while_too_many_messages_wait_for_it() -> None:
    async def converse() -> None:
        socket, heard = DeafSocket(), 0
        connection = Connection(socket, idle_seconds=30)  # type: ignore[arg-type]

        async def reply_to_all() -> None:
            nonlocal heard
            while True:
                assert await connection.receive() == MESSAGE
                heard += 1
                connection.say({"number": heard})

        async with connection.open():
            replying = asyncio.create_task(reply_to_all())
            await asyncio.sleep(0.5)
            heard_deaf = heard
            socket.reads.set()
            await asyncio.sleep(0.5)
            replying.cancel()
        assert MOST_UNSENT <= heard_deaf < 2 * MOST_UNSENT < heard and socket.closed

    finished(converse())


def test_client_that_never_reads_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_connection, "SENDING_SECONDS", 0.05)

    async def converse() -> None:
        socket = DeafSocket()
        connection = Connection(socket, idle_seconds=30)  # type: ignore[arg-type]
        async with connection.open():
            connection.say({"type": "error"})
            await asyncio.sleep(0.3)
            with pytest.raises(WebSocketDisconnect):
                await connection.receive()
        assert connection.stop.is_set() and not socket.closed, "there is nobody to say it to"

    finished(asyncio.wait_for(converse(), 30))
