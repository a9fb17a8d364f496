"""Clients of a websocket that do not read, or that send while the server works; and the threads of a connection."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest
from starlette.websockets import WebSocketDisconnect

from tests.support.coroutines import finished
from workbench.serving.streaming import live_connection
from workbench.serving.streaming.live_connection import MAX_RECEIVED, MAX_UNSENT, Connection

MESSAGE = {"type": "websocket.receive", "text": "{}"}


class DeafSocket:
    """A websocket with endless messages of a client that reads nothing until `reads` is set."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.sent: list[str] = []
        self.scope: dict[str, Any] = {}
        self.closed = False

    async def accept(self, subprotocol: str | None) -> None: ...

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
        assert MAX_UNSENT <= heard_deaf < 2 * MAX_UNSENT < heard and socket.closed

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


class SendingSocket(DeafSocket):
    """A websocket of a client that sends messages of a megabyte without a pause, and then leaves."""

    def __init__(self, messages: int) -> None:
        super().__init__()
        self.messages, self.received = messages, 0

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        if self.received == self.messages:
            return {"type": "websocket.disconnect", "code": 1001}
        self.received += 1
        return {"type": "websocket.receive", "bytes": bytes(1 << 20)}


async def take_turns(count: int = 200) -> None:
    """Lets everything else that can run take turns; each message takes two or three."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_messages_are_received_ahead_within_a_limit() -> None:
    async def converse() -> None:
        socket, most = SendingSocket(100), MAX_RECEIVED >> 20
        connection = Connection(socket, idle_seconds=30)  # type: ignore[arg-type]
        async with connection.open():
            await take_turns()
            assert socket.received == 0, "nobody has asked for a message"
            for heard in range(1, 4):
                await connection.receive()
                await take_turns()
                assert most - 1 <= socket.received - heard <= most + 1 and not connection.stop.is_set()

    finished(asyncio.wait_for(converse(), 30))


def test_work_stops_as_soon_as_the_client_leaves() -> None:
    async def converse() -> None:
        connection = Connection(SendingSocket(3), idle_seconds=30)  # type: ignore[arg-type]
        async with connection.open():
            await connection.receive()
            assert await connection.in_thread(connection.stop.wait, 20), "it works for somebody who has left"
            with pytest.raises(WebSocketDisconnect) as caught:
                await connection.receive()
            assert caught.value.code == 1001

    finished(asyncio.wait_for(converse(), 30))


def test_connections_that_wait_for_models_leave_threads_to_other_requests() -> None:
    released = threading.Event()

    async def converse() -> None:
        async with contextlib.AsyncExitStack() as stack:
            connections = [Connection(DeafSocket(), idle_seconds=30) for _ in range(40)]  # type: ignore[arg-type]
            for each in connections:
                await stack.enter_async_context(each.open())
            waiting = [asyncio.create_task(each.in_thread(released.wait, 20)) for each in connections]
            assert await asyncio.wait_for(asyncio.to_thread(lambda: not released.is_set()), 10)
            released.set()
            assert all(await asyncio.gather(*waiting))

    finished(asyncio.wait_for(converse(), 30))
