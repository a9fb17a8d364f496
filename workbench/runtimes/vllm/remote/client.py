"""Sends HTTP requests to a server from any number of threads: for whole answers, and for parallel streams of events.

One separate thread owns all connections. Closing a stream closes its connection, which tells vLLM to stop the work.
This file knows neither models nor the meaning of the answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

from workbench.core.errors import Unavailable, WorkbenchError
from workbench.core.settings import Server
from workbench.runtimes.vllm.engine.loop_thread import LoopThread
from workbench.runtimes.vllm.remote.events import DONE, EventReader
from workbench.runtimes.vllm.remote.refusals import (
    connection_error,
    refusal_error,
    shortened,
    stream_error,
    unexpected_answer_error,
    unreachable_error,
)

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 600.0  # without a byte: a busy server may let a request wait that long
ASK_SECONDS = 60.0  # for answers that need no model
PARALLEL_REQUESTS = 16  # of `ask_all`
MAX_ANSWER_BYTES = 64 << 20  # bytes of an answer that is not streamed
MAX_STREAM_BYTES = 1 << 30  # bytes of a streamed answer
BEAT_SECONDS = 0.25  # how often a stream's reader gets control while no event comes
LAST_SECONDS = 0.5  # for the end of a stream after its last event, so that the connection can be reused
CLOSE_SECONDS = 5.0  # for connections that are aborted


@dataclass(frozen=True)
class Call:
    """A request for a stream of events: JSON, or the fields and files of a form."""

    path: str
    body: Mapping[str, Any]
    # Name, content and type of each file; with files the request is a form.
    files: Mapping[str, tuple[str, bytes, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    content: Any  # parsed JSON; None if it is not JSON


class Client:
    """The connections to one server.

    Args:
        server: its address, and the environment variable with its key.
        model: the model's name in messages.

    Raises `Unavailable` if the key is not set.
    """

    def __init__(self, server: Server, model: str):
        import httpx

        self.server = server
        self.model = model
        headers = {"Authorization": f"Bearer {key}"} if (key := _key(server)) else {}
        self._http = httpx.AsyncClient(
            base_url=server.url,
            headers=headers,
            timeout=httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )
        self._thread = LoopThread("server connections")

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Returns a whole answer, whatever its status. Raises an error if there is no answer."""
        return self.ask_all([(method, path, body)])[0]

    def ask_all(self, requests: Sequence[tuple[str, str, Any]]) -> list[Answer]:
        """Returns the answers to requests of (method, path, JSON body), a few of them in parallel."""

        async def gather_answers() -> list[Answer]:
            semaphore = asyncio.Semaphore(PARALLEL_REQUESTS)

            async def ask_one(method: str, path: str, body: Any) -> Answer:
                async with semaphore:
                    return await self._fetch(method, path, body)

            return await asyncio.gather(*(ask_one(*request) for request in requests))

        try:
            return self._thread.submit(gather_answers()).result()
        except CancelledError:
            raise connection_error(self.server, "was abandoned") from None

    def stream(self, calls: Sequence[Call]) -> Generator[tuple[int, Mapping[str, Any]] | None, None, None]:
        """Yields the events of several parallel requests as they arrive, each with its request's index.

        Yields None from time to time while no event comes, so that the reader can stop. Closing the generator closes
        the connections. The first request that fails ends the others, and its error is raised.
        """
        arrivals: queue.SimpleQueue[tuple[int, Mapping[str, Any]] | BaseException | None] = queue.SimpleQueue()
        running = _BackgroundTask(self._thread.loop, lambda: self._stream_all(calls, arrivals))
        try:
            while True:
                try:
                    item = arrivals.get(timeout=BEAT_SECONDS)
                except queue.Empty:
                    if running.done.is_set() and arrivals.empty():
                        raise connection_error(self.server, "was given up") from None
                    yield None
                    continue
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            running.cancel()

    def close(self) -> None:
        """Closes all connections. May be called again."""
        if self._thread.loop.is_closed():
            return
        with contextlib.suppress(Exception):
            self._thread.submit(self._close_connections()).result(CLOSE_SECONDS)
        if self._thread.stop(CLOSE_SECONDS):
            self._thread.loop.close()

    # These methods run in the connections' thread.

    async def _close_connections(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()

    async def _fetch(self, method: str, path: str, body: Any) -> Answer:
        request_stream = self._http.stream(method, path, json=body)
        async with self._converting_errors(), asyncio.timeout(ASK_SECONDS), request_stream as response:
            status, content = response.status_code, await self._read_all(response)
        try:
            return Answer(status, json.loads(content))
        except (ValueError, RecursionError):
            if status == 200:
                received = shortened(content.decode("utf-8", "replace")) or "nothing"
                raise unexpected_answer_error(self.server, f"{path} with no JSON ({received})") from None
            return Answer(status, None)

    async def _stream_all(self, calls: Sequence[Call], arrivals: queue.SimpleQueue[Any]) -> None:
        """Puts the events of all calls into the queue, and last None or the first error."""
        tasks = [asyncio.create_task(self._stream_one(number, call, arrivals)) for number, call in enumerate(calls)]
        # The result unless the task ends normally.
        outcome: BaseException | None = connection_error(self.server, "was abandoned")
        try:
            if not tasks:
                outcome = None
            else:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                outcome = next((error for task in done if (error := task.exception())), None)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            arrivals.put(outcome)

    async def _stream_one(self, number: int, call: Call, arrivals: queue.SimpleQueue[Any]) -> None:
        request_body: dict[str, Any] = (
            {"data": dict(call.body), "files": call.files} if call.files else {"json": call.body}
        )
        async with self._converting_errors(), self._http.stream("POST", call.path, **request_body) as response:
            if response.status_code != 200:
                raise refusal_error(self.server, response.status_code, await self._read_all(response))
            reader, size = EventReader(), 0
            chunks = response.aiter_bytes()
            async for chunk in chunks:
                size += len(chunk)
                if size > MAX_STREAM_BYTES:
                    raise unexpected_answer_error(
                        self.server, f"with a stream of more than {MAX_STREAM_BYTES >> 30} GB"
                    )
                try:
                    events = reader.feed(chunk)
                except ValueError as error:
                    raise unexpected_answer_error(self.server, f"with {error}") from None
                for data in events:
                    if data == DONE:
                        await _drain(chunks)
                        return
                    arrivals.put((number, self._event(data)))
            raise connection_error(self.server, "ended the stream")

    def _event(self, data: str) -> Mapping[str, Any]:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise unexpected_answer_error(self.server, f"with an event that is not JSON ({shortened(data)})") from None
        if not isinstance(event, dict):
            raise unexpected_answer_error(self.server, f"with an event that is not a JSON object ({shortened(data)})")
        if event.get("error"):
            raise stream_error(self.server, event["error"])
        return event

    async def _read_all(self, response: Any) -> bytes:
        parts, size = [], 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise unexpected_answer_error(self.server, f"with more than {MAX_ANSWER_BYTES >> 20} MB")
            parts.append(chunk)
        return b"".join(parts)

    @contextlib.asynccontextmanager
    async def _converting_errors(self) -> AsyncIterator[None]:
        """Turns every failure of a connection into an error of this project."""
        import httpx

        try:
            yield
        except WorkbenchError:
            raise
        except (httpx.ConnectTimeout, httpx.PoolTimeout):
            raise unreachable_error(self.server, self.model, f"no answer within {CONNECT_SECONDS:g} seconds") from None
        except (httpx.ConnectError, httpx.ProxyError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise unreachable_error(self.server, self.model, _cause(error)) from None
        except TimeoutError:
            raise connection_error(self.server, f"needs more than {ASK_SECONDS:g} seconds") from None
        except httpx.TimeoutException:
            raise connection_error(self.server, f"has sent nothing for {SILENCE_SECONDS:g} seconds") from None
        except httpx.DecodingError:
            raise unexpected_answer_error(self.server, "with bytes that cannot be decompressed") from None
        except (httpx.HTTPError, httpx.StreamError, OSError):
            raise connection_error(self.server, "closed the connection") from None


class _BackgroundTask:
    """A coroutine that runs in another thread's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]]):
        self.done = threading.Event()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work())
        self._task.add_done_callback(lambda _: self.done.set())

    def cancel(self) -> None:
        """Stops it, and waits until its connections are closed."""
        if not self.done.is_set() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)
            self.done.wait(CLOSE_SECONDS)

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _cause(error: BaseException) -> str:
    """Returns why there is no connection: the operating system's message below the other layers' messages."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:  # negative numbers mean that a name has no address
            return shortened(os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror))
        cause = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause.__cause__ or cause.__context__
    return shortened(str(error)) or type(error).__name__


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Reads the rest of an answer, if that takes no time."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(LAST_SECONDS):
            async for _ in chunks:
                pass


def _key(server: Server) -> str:
    if not server.key:
        return ""
    key = os.environ.get(server.key, "").strip()
    if not key:
        raise Unavailable(
            f"the server {server.url} wants a key that its card expects in the environment variable {server.key}, "
            "which is not set"
        )
    if not key.isascii() or not key.isprintable():
        raise Unavailable(f"the environment variable {server.key} holds no key for a server; expected plain characters")
    return key
