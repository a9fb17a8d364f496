"""Old files are removed while a server runs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.coroutines import finished
from workbench.serving import expiry
from workbench.serving.expiry import removing_expired


def test_removals_are_repeated_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "EXPIRY_SECONDS", 0.01)
    calls, third = [], threading.Event()

    def remove() -> None:
        calls.append(threading.current_thread())
        if len(calls) == 3:
            third.set()

    async def serve() -> tuple[int, threading.Thread]:
        async with removing_expired(remove):
            assert await asyncio.to_thread(third.wait, 20), "it was called once only"
        return len(calls), threading.current_thread()

    count, server_thread = finished(serve())
    assert count == len(calls), "it goes on after the block"
    assert server_thread not in calls, "other requests would wait"


def test_all_removals_are_called_at_the_start() -> None:
    first, second = threading.Event(), threading.Event()

    async def serve() -> None:
        async with removing_expired(first.set, second.set):
            assert await asyncio.to_thread(first.wait, 20) and await asyncio.to_thread(second.wait, 20)

    finished(serve())


def test_error_of_the_block_is_not_lost() -> None:
    async def serve() -> None:
        async with removing_expired(lambda: None):
            raise KeyError("the server's own")

    with pytest.raises(KeyError, match="the server's own"):
        finished(serve())
