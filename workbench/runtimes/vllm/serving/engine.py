"""The engine of vLLM's own server, for one conversation of a SpeechLM."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.core.errors import BadInput, Cancelled, SessionDied, WorkbenchError
from workbench.runtimes.vllm.engine.running_requests import Finished, RunningRequests, limits_of, request_error, room_of
from workbench.runtimes.vllm.requests.request import Limits, Request, check_request

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM


class ServedEngine:
    """Asks a running engine for one conversation, which `give_up` ends at any time. The server owns the engine.

    Args:
        llm: the server's front end of its engine.
        loop: the event loop that the front end runs in; all other methods are called in other threads.
        name: of the model.
    """

    where = "the server's log"  # it reports errors there

    def __init__(self, llm: AsyncLLM, loop: asyncio.AbstractEventLoop, name: str):
        self._llm, self._loop, self._name = llm, loop, name
        self._lock = threading.Lock()
        self._requests: RunningRequests | None = None
        self._given_up = False

    @property
    def dtype(self) -> str:
        """The name of the arithmetic's type."""
        return str(self._llm.model_config.dtype).removeprefix("torch.")

    @cached_property
    def limits(self) -> Limits:
        """The limits of requests."""
        return limits_of(self._llm)

    def room(self, sequences: int) -> int:
        """See `workbench.runtimes.vllm.engine.engine.Engine.room`.

        Raises `BadInput` if the server has several engines, as it may give each sequence to another one.
        """
        engines = int(self._llm.vllm_config.parallel_config.data_parallel_size)
        if engines > 1:
            raise BadInput(f"cfg needs two sequences in one engine, and the server has {engines} engines; set cfg to 1")
        return room_of(self._llm, sequences)

    def follow(
        self, requests: Sequence[Request], params: Sequence[SamplingParams]
    ) -> Generator[tuple[int, list[int], Any], None, list[Finished]]:
        """See `workbench.runtimes.vllm.engine.engine.Engine.follow`. Raises `Cancelled` after `give_up`."""
        for request in requests:
            check_request(request, self.limits)
        paired = list(zip(requests, params, strict=True))
        running = RunningRequests(self._llm, self._loop, paired, self._name, self._convert_error)
        with self._lock:
            if self._given_up:
                raise _cancelled()
            self._requests = running
        return (yield from running.outputs())

    def give_up(self) -> None:
        """Ends the conversation's request at once; `follow` raises `Cancelled` and aborts it. May be called again."""
        with self._lock:
            self._given_up = True
            if self._requests is not None:
                self._requests.give_up(_cancelled())

    def close(self) -> None:
        """Does nothing: the server ends its engine."""

    def _convert_error(self, error: BaseException) -> WorkbenchError:
        if self._llm.errored and not isinstance(error, WorkbenchError):
            return SessionDied(f"the engine of {self._name} has ended at work; the server's log says why")
        return request_error(error, self._name)


def _cancelled() -> Cancelled:
    return Cancelled("the client has left")
