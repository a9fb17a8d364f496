"""Brings the events of work that blocks a thread into an event loop. The work stops within one event."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

Event = TypeVar("Event")
Work = Callable[[threading.Event], Generator[Event, None, None]]
"""Yields events in a thread. It ends soon after the event that it is given is set."""

CLIENT_CLOSED_REQUEST = 499  # the status that web servers log for a client that went away; no client receives it


class ClientGone(Exception):
    """The client closed its connection, and the work has been stopped."""


async def events_of(work: Work[Event]) -> AsyncGenerator[Event, None]:
    """Yields the events of work that runs in a thread of its own, and raises what it raises.

    Closing the generator stops the work.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue()
    stop = threading.Event()

    def report(ended: bool, value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(arrived.put_nowait, (ended, value))

    def run() -> None:
        try:
            with contextlib.closing(work(stop)) as events:
                for event in events:
                    report(False, event)
                    if stop.is_set():
                        return
        except BaseException as error:
            report(True, error)
        else:
            report(True, None)

    # In the context of the request: it says for whom the work is.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name="a request", daemon=True).start()
    try:
        while True:
            ended, value = await arrived.get()
            if not ended:
                yield value
            elif value is None:
                return
            else:
                raise value
    finally:
        stop.set()


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has closed its connection; its request has been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def all_events(request: Request, work: Work[Event]) -> list[Event]:
    """Returns all events of work for a request; raises `ClientGone` if the client does not wait for them."""

    async def collected() -> list[Event]:
        async with contextlib.aclosing(events_of(work)) as events:
            return [event async for event in events]

    working = asyncio.create_task(collected())
    leaving = asyncio.create_task(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


class Streamed:
    """A response whose parts come from a generator, which is closed as soon as the client goes away."""

    def __init__(
        self,
        parts: AsyncGenerator[bytes, None],
        media_type: str,
        headers: dict[str, str] | None = None,
    ):
        self.parts, self.status_code = parts, 200
        all_headers = {
            "content-type": media_type,
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            **(headers or {}),
        }
        self.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in all_headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the parts as they come."""

        async def send_parts() -> None:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with contextlib.aclosing(self.parts):
                async for part in self.parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        sending, leaving = asyncio.create_task(send_parts()), asyncio.create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                with contextlib.suppress(OSError):  # the client went away just now
                    sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
