"""Streamed answers: a client that leaves at any moment, and work that fails in the middle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from starlette.requests import Request

from tests.support.coroutines import finished
from workbench.core.errors import WorkbenchError
from workbench.serving.routes.request_work import CLIENT_CLOSED_REQUEST, ClientGone, events_of
from workbench.serving.routes.streams import EVENTS, streamed
from workbench.serving.service import Call, Service


class CountedCall(Call):
    """A call that keeps the statuses with which it ended, and notes the end in `sent`."""

    def __init__(self, service: Service, receive: Any, sent: list[Any]):
        super().__init__(service, Request({"type": "http", "headers": []}, receive), "test")
        self.ended_with: list[int] = []
        self._sent = sent

    def end(self, status: int) -> None:
        super().end(status)
        self.ended_with.append(status)
        self._sent.append("end")


async def never() -> Any:
    """A client that stays."""
    await asyncio.sleep(60)


def test_client_that_leaves_before_the_first_part_stops_the_work(service: Service) -> None:
    started, stopped = threading.Event(), threading.Event()

    def work(stop: threading.Event) -> Generator[bytes, None, None]:
        started.set()
        assert stop.wait(30)
        stopped.set()
        yield b"too late"

    async def receive() -> dict[str, Any]:
        await asyncio.to_thread(started.wait)
        return {"type": "http.disconnect"}

    async def ask() -> None:
        await streamed(CountedCall(service, receive, []), events_of(work))

    with pytest.raises(ClientGone):
        finished(ask())
    assert stopped.wait(30)


def test_client_that_leaves_before_the_response_begins_frees_the_slot(service: Service) -> None:
    """The start of a pipelined response waits until the client has read the one before."""
    closed: list[str] = []

    async def parts() -> AsyncGenerator[bytes, None]:
        try:
            yield b"one"
            yield b"two"
        finally:
            closed.append("parts")

    async def ask() -> CountedCall:
        call = CountedCall(service, never, [])
        call.begin()
        response = await streamed(call, parts())

        async def leave() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        await response({"type": "http"}, leave, lambda message: never())
        return call

    assert finished(ask()).ended_with == [CLIENT_CLOSED_REQUEST] and closed == ["parts"]


@pytest.mark.parametrize("kind", [EVENTS, "audio/pcm"])
@pytest.mark.parametrize("fails", [False, True])
def test_failed_stream_is_never_mistaken_for_a_complete_one(service: Service, kind: str, fails: bool) -> None:
    sent: list[Any] = []

    async def parts() -> AsyncGenerator[bytes, None]:
        yield b""
        yield b"one"
        if fails:
            raise WorkbenchError("the run took too long")

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> CountedCall:
        call = CountedCall(service, never, sent)
        response = await streamed(call, parts(), media_type=kind, headers=lambda: {"x-sample-rate": "24000"})
        await response({"type": "http"}, never, send)
        return call

    assert finished(ask()).ended_with == [500 if fails else 200]
    assert (b"x-sample-rate", b"24000") in sent[0]["headers"]
    bodies = [message if message == "end" else message["body"] for message in sent[1:]]
    if not fails:
        assert bodies == [b"one", "end", b""] and sent[-1]["more_body"] is False
    elif kind == EVENTS:
        assert bodies[:2] == [b"one", "end"] and b"the run took too long" in bodies[2] and bodies[3:] == [b""]
    else:
        assert bodies == [b"one", "end"], "the connection is closed before the end of the body"
