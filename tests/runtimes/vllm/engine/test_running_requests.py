"""Requests in vLLM's front end: what becomes of one that the engine ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.core.errors import SessionDied
from workbench.runtimes.vllm.engine.loop_thread import LoopThread
from workbench.runtimes.vllm.engine.running_requests import Finished, RunningRequests
from workbench.runtimes.vllm.requests.request import Request


class FakeFrontEnd:
    """A front end whose requests give two tokens and end for the same reason."""

    def __init__(self, reason: str):
        self.reason = reason

    async def generate(self, prompt: Any, params: Any, request_id: str) -> AsyncIterator[Any]:
        for number, reason in ((7, None), (8, self.reason)):
            piece = SimpleNamespace(token_ids=[number], logprobs=None, finish_reason=reason)
            yield SimpleNamespace(outputs=[piece], prompt_logprobs=None, finished=reason is not None)


@pytest.fixture
def loop_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopThread]:
    async def rendered(*arguments: Any) -> None:
        return None

    monkeypatch.setattr("workbench.runtimes.vllm.engine.running_requests.rendered", rendered)
    thread = LoopThread("loop")
    yield thread
    thread.stop(10)


@pytest.mark.parametrize("reason", ["stop", "length", "abort"])
def test_request_that_an_engine_has_not_finished_raises_an_error(reason: str, loop_thread: LoopThread) -> None:
    requests: Any = [(Request([1]), None)]
    stopped = SessionDied("the engine of tiny was stopped")
    llm: Any = FakeFrontEnd(reason)
    running = RunningRequests(llm, loop_thread.loop, requests, "tiny", lambda error: stopped)
    found: list[int] = []
    ends: list[Finished] = []
    with closing(running.outputs()) as outputs:
        while not ends:
            try:
                found += next(outputs)[1]
            except StopIteration as done:
                ends = done.value
            except SessionDied:
                break
    assert found == [7, 8] and [end.reason for end in ends] == ([] if reason == "abort" else [reason])
