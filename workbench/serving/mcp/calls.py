"""One call of a tool of MCP: work in a thread. Its progress goes to the client, and it ends when the client leaves."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, TypeVar

from mcp.server.mcpserver import Context

from workbench.core.errors import WorkbenchError
from workbench.core.progress import listening
from workbench.openai_api.errors import error_answer
from workbench.serving.routes.request_work import CLIENT_CLOSED_REQUEST, events_of
from workbench.serving.service import Call, Service
from workbench.serving.work import follower

Event = TypeVar("Event")
STEP = 1e-3  # of what is left: how much the progress grows at each report if the total is unknown
LONGEST_MESSAGE = 160  # characters
QUIET_SECONDS = 5.0  # before what was said already is said again


class ProgressSender:
    """Sends the progress of a call to the client.

    `say` may be called in any thread; reports that come too fast are left out.
    """

    def __init__(self, context: Context[Any, Any]):
        self._context, self._loop = context, asyncio.get_running_loop()
        self._update: tuple[float | None, str] | None = None
        self._changed, self._ended = asyncio.Event(), False

    def say(self, message: str, done: float | None = None) -> None:
        """Sends the present activity.

        Args:
            done: 0 to 1; None if unknown.
        """
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._take, (done, message[:LONGEST_MESSAGE]))

    def _take(self, update: tuple[float | None, str] | None) -> None:
        self._update = update or self._update
        self._ended = update is None
        self._changed.set()

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Sends the messages of `say` inside the block, and the last one at its end."""
        task = asyncio.create_task(self._send())
        try:
            yield
            self._take(None)
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send(self) -> None:
        reached, last_message, since = 0.0, "", 0.0
        while not self._ended:
            await self._changed.wait()
            self._changed.clear()
            update, self._update = self._update, None
            if update is None:
                continue
            done, message = update
            if message == last_message and (done or 0.0) <= reached and time.monotonic() - since < QUIET_SECONDS:
                continue
            last_message, since = message, time.monotonic()
            # By the protocol, it grows with every message.
            reached = done if done is not None and done > reached else reached + (1 - reached) * STEP
            await self._context.report_progress(reached, 1.0, message)


async def worked(
    context: Context[Any, Any],
    work: Callable[[threading.Event, ProgressSender], Generator[Event, None, None]],
) -> list[Event]:
    """Returns all events of work.

    The progress of loads and waits goes to the client. If the client leaves or cancels, the work stops.
    """
    progress = ProgressSender(context)

    def run(stop: threading.Event) -> Generator[Event, None, None]:
        with listening(follower(stop, progress.say)):
            yield from work(stop, progress)

    async with progress.sending(), contextlib.aclosing(events_of(run)) as events:
        return [event async for event in events]


@contextlib.asynccontextmanager
async def counted(service: Service, context: Context[Any, Any], tool: str) -> AsyncIterator[Call]:
    """Yields the call of a tool. It is counted like a request of a route."""
    request: Any = context.request_context.request
    call = Call(service, request, f"mcp {tool}")
    status = 500
    try:
        yield call
        status = 200
    except asyncio.CancelledError:
        status = CLIENT_CLOSED_REQUEST
        raise
    except WorkbenchError as error:
        status, _ = error_answer(error)
        raise
    finally:
        call.end(status)
