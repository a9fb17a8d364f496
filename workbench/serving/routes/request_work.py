"""Brings the events of work that blocks a thread into an event loop. The work stops within one event."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive

Event = TypeVar("Event")
Result = TypeVar("Result")
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


async def unless_gone(request: Request, coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Returns the result of a coroutine; raises `ClientGone` if the client of the request goes away before."""
    working = asyncio.create_task(coroutine)
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


async def all_events(request: Request, work: Work[Event]) -> list[Event]:
    """Returns all events of work for a request; raises `ClientGone` if the client does not wait for them."""

    async def collected() -> list[Event]:
        async with contextlib.aclosing(events_of(work)) as events:
            return [event async for event in events]

    return await unless_gone(request, collected())
