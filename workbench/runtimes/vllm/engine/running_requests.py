"""Follows requests in vLLM's front end from any thread; the front end runs in the event loop of another one.

The engine of a session and the engine of vLLM's own server both get requests this way. This file starts no engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from workbench.core.errors import BadInput, WorkbenchError, message_of, named_message_of
from workbench.runtimes.vllm.requests.rendering import rendered
from workbench.runtimes.vllm.requests.request import Limits, Request

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

ABORT_SECONDS = 10.0  # for aborted requests to end
ABORTED = "abort"  # how a request ends that an engine has not finished when it is stopped


@dataclass(frozen=True)
class Finished:
    """The end of a request."""

    reason: str  # stop or length
    prompt_tokens: int
    # vLLM's log-probabilities by token of each position of the prompt, where its parameters ask for them
    prompt_logprobs: Sequence[Any] = ()


class RunningRequests:
    """Some requests on their way through an engine.

    Args:
        llm: vLLM's front end.
        loop: the event loop that the front end runs in. `outputs` must be read in another thread.
        requests: the requests with vLLM's parameters.
        name: begins the requests' ids.
        convert_error: returns the error to raise for an error of vLLM.
    """

    def __init__(
        self,
        llm: AsyncLLM,
        loop: asyncio.AbstractEventLoop,
        requests: Sequence[tuple[Request, SamplingParams]],
        name: str,
        convert_error: Callable[[BaseException], WorkbenchError],
    ):
        self._llm, self._loop, self._requests, self._name, self._convert_error = (
            llm,
            loop,
            requests,
            name,
            convert_error,
        )
        self._answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._settled = threading.Event()  # no request runs any more

    def outputs(self) -> Generator[tuple[int, list[int], Any], None, list[Finished]]:
        """Yields (index of the request, its new ids, vLLM's log-probabilities of each); returns how each ended.

        Closing the iterator aborts the requests in the engine.
        """
        following = asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result()
        ends: list[Finished | None] = [None] * len(self._requests)
        try:
            while None in ends:
                number, answer = self._answers.get()
                if isinstance(answer, BaseException):
                    raise self._convert_error(answer)
                if isinstance(answer, Finished):
                    ends[number] = answer
                    continue
                yield number, *answer
        finally:
            if None in ends:  # unfinished requests are aborted in the engine
                self._loop.call_soon_threadsafe(following.cancel)
                self._settled.wait(ABORT_SECONDS)
        return [end for end in ends if end is not None]

    def give_up(self, error: WorkbenchError) -> None:
        """Makes `outputs` raise this error at once, even while no output comes. Any thread may call it."""
        self._answers.put((0, error))

    async def _begin(self) -> asyncio.Future[Any]:
        """Starts every request, and returns a future whose cancellation cancels them all."""
        following = asyncio.gather(*(self._follow(number, *each) for number, each in enumerate(self._requests)))
        following.add_done_callback(self._end)
        return following

    def _end(self, following: asyncio.Future[Any]) -> None:
        if not following.cancelled():
            following.exception()  # which was asked for, so that asyncio reports none
        self._settled.set()

    async def _follow(self, number: int, request: Request, params: SamplingParams) -> None:
        """Puts the results of one request into the queue."""
        try:
            prompt = await rendered(self._llm, request)
            prompt_logprobs: Sequence[Any] = ()
            stream = self._llm.generate(prompt, params, request_id=f"{self._name}-{uuid4().hex}")
            async with contextlib.aclosing(stream):
                async for output in stream:
                    [piece] = output.outputs
                    prompt_logprobs = output.prompt_logprobs or prompt_logprobs
                    if piece.token_ids:
                        self._answers.put((number, (list(piece.token_ids), piece.logprobs or ())))
                    if piece.finish_reason == ABORTED:
                        raise RuntimeError("vLLM aborted the request")
                    if output.finished:
                        self._answers.put(
                            (number, Finished(piece.finish_reason or "stop", request.positions, prompt_logprobs))
                        )
        except Exception as error:
            self._answers.put((number, error))


def request_error(error: BaseException, name: str) -> WorkbenchError:
    """Returns the error to raise for an error of vLLM whose engine goes on.

    Args:
        name: of the model.
    """
    for each in (error, error.__cause__):  # vLLM wraps an error that is raised for one of its requests
        if isinstance(each, WorkbenchError):
            return each
    from vllm.exceptions import VLLMClientError

    if isinstance(error, (ValueError, VLLMClientError)):
        return BadInput(f"vLLM does not take the request: {message_of(error, None)}")
    return WorkbenchError(f"the engine of {name} failed: {named_message_of(error)}")


def limits_of(llm: AsyncLLM) -> Limits:
    """Returns the limits of an engine's requests."""
    config = llm.model_config
    return Limits(
        hidden_size=int(config.get_inputs_embeds_size()),
        vocabulary=max(int(config.get_vocab_size()), len(llm.get_tokenizer())),
        max_length=int(config.max_model_len),
        accepts_audio=bool(config.is_multimodal_model),
    )


def room_of(llm: AsyncLLM, sequences: int) -> int:
    """Returns how many positions each of several sequences may have if all are in an engine's memory together.

    Raises `BadInput` if the engine computes fewer sequences at once.
    """
    cache, max_sequences = llm.vllm_config.cache_config, int(llm.vllm_config.scheduler_config.max_num_seqs)
    if max_sequences < sequences:
        raise BadInput(
            f"cfg needs {sequences} sequences at once, and max_num_seqs of the engine is {max_sequences}; set cfg to 1"
        )
    # vLLM keeps one block for itself.
    return (int(cache.num_gpu_blocks or 0) - 1) // sequences * int(cache.block_size)
