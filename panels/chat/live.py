"""The websocket of the Chat tab: the page sends a turn and receives text, speech and the answer during generation.

One connection is one turn. Its first message is a parcel (see `panels.chat.wire`); later ones are
`{"type": "stop", "column": number or null}`. If the page goes away, its turn stops. This file knows no model.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from panels.chat.request import Column, read_request
from panels.chat.run import answer_columns
from panels.chat.wire import chunk, unpack
from panels.running.sessions import SessionPool
from panels.transcribe.run import sentence_of
from workbench.core.errors import BadInput
from workbench.core.visitors import in_current_context
from workbench.session.conversation import AudioPiece

LONGEST_REQUEST = 200  # characters, of a message that stops columns; a longer one stops all of them
ROWS_SECONDS = 0.1  # the shortest time between two reports of rows without samples
Message = str | bytes


async def live(pool: SessionPool, slots: threading.Semaphore, socket: WebSocket) -> None:
    """Serves one turn; refuses it if all slots are taken."""
    await socket.accept()
    queue: asyncio.Queue[Message | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def send(message: Message | None) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(queue.put_nowait, message)

    stops: list[threading.Event] = []
    try:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        try:
            columns = await asyncio.to_thread(_read, pool, message.get("bytes") or b"")
            if not slots.acquire(blocking=False):
                raise BadInput("the server is busy with too many answers; send the message again in a moment")
        except Exception as error:
            await socket.send_text(json.dumps({"type": "refused", "sentence": sentence_of(error)}))
            await socket.close()
            return
        stops += [threading.Event() for _ in columns]
        threading.Thread(
            target=in_current_context(_work), args=(pool, slots, columns, stops, send), daemon=True
        ).start()
        await _carry(socket, queue, stops)
        await socket.close()
    except (WebSocketDisconnect, KeyError, RuntimeError):  # the visitor left, or the message is invalid
        pass
    finally:
        for stop in stops:
            stop.set()


def _read(pool: SessionPool, parcel: bytes) -> tuple[Column, ...]:
    content, sounds = unpack(parcel)
    return read_request(pool.registry, content, sounds)


def _work(
    pool: SessionPool,
    slots: threading.Semaphore,
    columns: tuple[Column, ...],
    stops: list[threading.Event],
    send: Any,
) -> None:
    reported = 0.0

    def send_event(column: int, event: dict[str, Any] | AudioPiece) -> None:
        nonlocal reported
        if isinstance(event, dict):
            send(json.dumps({**event, "column": column}, ensure_ascii=False))
        elif len(event.samples) or time.monotonic() - reported >= ROWS_SECONDS:
            reported = time.monotonic()
            send(chunk(column, event))

    try:
        answer_columns(pool, columns, stops, send_event)
    finally:
        slots.release()
        send(None)


async def _carry(socket: WebSocket, queue: asyncio.Queue[Message | None], stops: list[threading.Event]) -> None:
    """Sends all messages of a turn until its end, and receives the page's requests to stop meanwhile."""
    listening = asyncio.create_task(_listen(socket, stops))
    try:
        while (message := await queue.get()) is not None:
            if isinstance(message, bytes):
                await socket.send_bytes(message)
            else:
                await socket.send_text(message)
        await socket.send_text(json.dumps({"type": "end"}))
    finally:
        listening.cancel()


async def _listen(socket: WebSocket, stops: list[threading.Event]) -> None:
    try:
        while True:
            text = await socket.receive_text()
            message = json.loads(text) if len(text) <= LONGEST_REQUEST else None
            column = message.get("column") if isinstance(message, dict) else None
            for number, stop in enumerate(stops):
                if column is None or column == number:
                    stop.set()
    except (WebSocketDisconnect, ValueError, KeyError, RuntimeError):
        for stop in stops:
            stop.set()
