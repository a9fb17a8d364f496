"""Requests of one conversation to a server's engine: tokens, errors, limits and cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM")

from workbench.core.errors import BadInput, Cancelled, SessionDied
from workbench.runtimes.vllm.engine import running_requests
from workbench.runtimes.vllm.engine.running_requests import Finished
from workbench.runtimes.vllm.requests.request import Request
from workbench.runtimes.vllm.serving.engine import ServedEngine


class FakeFrontEnd:
    """Yields these tokens one by one, then ends, waits for ever or raises, as `then` says."""

    def __init__(self, tokens: list[int], then: Any = "end"):
        self.tokens, self.then = tokens, then
        self.running, self.errored = 0, False
        self.model_config = SimpleNamespace(
            get_inputs_embeds_size=lambda: 4,
            get_vocab_size=lambda: 100,
            max_model_len=50,
            is_multimodal_model=True,
            dtype="torch.float32",
        )

    def get_tokenizer(self) -> str:
        return "tokens"

    async def generate(self, prompt: Any, params: Any, request_id: str) -> AsyncGenerator[Any, None]:
        self.running += 1
        try:
            for number, token in enumerate(self.tokens, 1):
                last = number == len(self.tokens) and self.then == "end"
                piece = SimpleNamespace(token_ids=[token], logprobs=None, finish_reason="stop" if last else None)
                yield SimpleNamespace(outputs=[piece], finished=last, prompt_logprobs=None)
            if self.then == "wait":
                await asyncio.Event().wait()
            if isinstance(self.then, BaseException):
                raise self.then
        finally:
            self.running -= 1


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.AbstractEventLoop]:
    async def render(llm: Any, request: Any) -> Any:
        return request

    monkeypatch.setattr(running_requests, "rendered", render)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def follow(engine: ServedEngine, ids: tuple[int, ...] = (1, 2)) -> Any:
    return engine.follow([Request(ids)], [None])  # type: ignore[list-item]


def test_tokens_are_streamed_and_followed_by_the_finish_reason(loop: asyncio.AbstractEventLoop) -> None:
    front = FakeFrontEnd([5, 6])
    engine = ServedEngine(front, loop, "it")  # type: ignore[arg-type]
    ends: list[Any] = []

    def collect_end() -> Any:
        ends.extend((yield from follow(engine)))

    assert list(collect_end()) == [(0, [5], ()), (0, [6], ())] and ends == [Finished("stop", 2)]


def test_give_up_aborts_a_waiting_request(loop: asyncio.AbstractEventLoop) -> None:
    front = FakeFrontEnd([5], "wait")
    engine = ServedEngine(front, loop, "it")  # type: ignore[arg-type]
    stream = follow(engine)
    assert next(stream) == (0, [5], ()) and front.running == 1
    threading.Timer(0.05, engine.give_up).start()
    with pytest.raises(Cancelled, match="the client has left"):
        next(stream)
    assert front.running == 0
    with pytest.raises(Cancelled):
        next(follow(engine))
    engine.give_up()
    engine.close()


@pytest.mark.parametrize("dead", [False, True])
def test_engine_failures_raise_one_line_error(dead: bool, loop: asyncio.AbstractEventLoop) -> None:
    front = FakeFrontEnd([5], ValueError("too  long\nindeed"))
    stream = follow(ServedEngine(front, loop, "it"))  # type: ignore[arg-type]
    next(stream)
    front.errored = dead
    kind, message = (SessionDied, "the engine of it has ended at work") if dead else (BadInput, "too long indeed")
    with pytest.raises(kind, match=message):
        next(stream)


def test_invalid_request_is_refused_before_it_reaches_the_engine(loop: asyncio.AbstractEventLoop) -> None:
    front = FakeFrontEnd([])
    with pytest.raises(BadInput, match="the prompt has the token 100; expected numbers from 0 to 99"):
        next(follow(ServedEngine(front, loop, "it"), (1, 100)))  # type: ignore[arg-type]
    assert front.running == 0


def test_guidance_reduces_kv_cache_room_and_needs_two_sequences_in_one_engine(loop: asyncio.AbstractEventLoop) -> None:
    llm: Any = FakeFrontEnd([])
    llm.vllm_config = SimpleNamespace(
        cache_config=SimpleNamespace(num_gpu_blocks=8, block_size=16),
        parallel_config=SimpleNamespace(data_parallel_size=1),
        scheduler_config=SimpleNamespace(max_num_seqs=2),
    )
    engine = ServedEngine(llm, loop, "tiny")
    assert engine.room(2) == 48 and engine.room(1) == 112
    llm.vllm_config.scheduler_config.max_num_seqs = 1
    with pytest.raises(BadInput, match="cfg needs 2 sequences at once, and max_num_seqs of the engine is 1; set cfg"):
        engine.room(2)
    llm.vllm_config.parallel_config.data_parallel_size = 3
    with pytest.raises(BadInput, match="cfg needs two sequences in one engine, and the server has 3 engines"):
        engine.room(2)
