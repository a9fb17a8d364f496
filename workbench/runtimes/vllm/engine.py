"""One vLLM engine: started, watched, asked by many threads at once, started again when it dies.

vLLM computes in processes of its own. This file is their front end's face to the rest of the session: plain requests
in, token ids out as they come. It knows no model.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import signal
import threading
import time
from collections.abc import Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.core.errors import BadInput, SessionDied, Unavailable, WorkbenchError
from workbench.core.progress import report
from workbench.core.runtimes import CPU_KV_GIGABYTES
from workbench.decoding.alternatives import Watch
from workbench.decoding.generation import Decoding
from workbench.runtimes.vllm.environment import environment, running_on_cpu
from workbench.runtimes.vllm.log import EngineLog, raised_in, reason_of
from workbench.runtimes.vllm.processes import Processes
from workbench.runtimes.vllm.rendering import rendered
from workbench.runtimes.vllm.request import Limits, Request, check_request
from workbench.runtimes.vllm.sampling import alternatives_told, sampling_params

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

EXTENSION = "workbench.runtimes.vllm.extension.Extension"
LOOK_SECONDS = 0.25  # between looks at how far a start is
TYPICAL_START_SECONDS = 60.0  # on a CPU; only progress goes by it
STOP_SECONDS = 5.0  # that vLLM may take to end its processes
ABORT_SECONDS = 10.0  # that requests nobody wants may take to end

Result = TypeVar("Result")


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is started with; see `workbench.core.settings.Settings`."""

    model: Path  # a directory that vLLM loads
    name: str  # of the model, for messages and the log
    dtype: str = "float32"
    max_length: int | None = None  # None: the model's, or as much as fits the space for keys and values
    kv_gigabytes: float | None = None  # None: on a CPU 1, on a GPU what vLLM leaves
    tensor_parallel: int = 1
    eager: bool = True
    threads: int | None = None
    arguments: dict[str, Any] = field(default_factory=dict)  # of vLLM, beside those above


@dataclass(frozen=True)
class Health:
    """How an engine is."""

    state: str  # stopped, starting, ready or dead
    startup_seconds: float  # of the last start
    pids: tuple[int, ...]  # its processes
    log: Path | None
    reason: str = ""  # why it could not start, or died


@dataclass(frozen=True)
class Finished:
    """How a request ended."""

    reason: str  # stop or length
    prompt_tokens: int


class Engine:
    """An engine in processes of its own; every method may be called from any thread.

    `stream` and `call` start it where it does not run.
    """

    def __init__(self, options: EngineOptions):
        self.options = options
        self._state = threading.RLock()  # held while it starts or stops
        self._llm: AsyncLLM | None = None
        self._processes = Processes()
        self._log: EngineLog | None = None
        self._limits: Limits | None = None
        self._numbers = count(1)
        self._startup_seconds = 0.0
        self._reason = ""
        self._starting = False
        self._loop = asyncio.new_event_loop()  # of its own thread, in which vLLM's front end works
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm-loop", daemon=True)
        self._thread.start()

    # Its life.

    def start(self) -> None:
        """Starts the engine where it does not run; tells how far it is through `workbench.core.progress`.

        Raises `Unavailable` with vLLM's own reason where it cannot.
        """
        with self._state:
            if self._llm is not None and not self._llm.errored:
                return
            self._end()
            self._starting, self._reason = True, ""
            begun = time.perf_counter()
            if self._log is None:
                self._log = EngineLog.open(self.options.name)
            self._log.begin()
            try:
                self._llm = self._started(self._log)
            except BaseException as error:
                self._processes.end()
                if isinstance(error, WorkbenchError) or not isinstance(error, Exception):
                    raise  # nobody waits for it any more
                self._reason = reason_of(error, self._log)
                raise Unavailable(
                    f"vLLM cannot start {self.options.name}: {self._reason} (its log: {self._log.path})"
                ) from error
            finally:
                self._starting = False
                self._startup_seconds = time.perf_counter() - begun

    def _started(self, log: EngineLog) -> AsyncLLM:
        begun = time.monotonic()
        with environment(self.options.threads, self.options.eager), log.captured(), self._processes.watched():
            starting = self._submit(self._made())
            while True:
                try:
                    llm = starting.result(LOOK_SECONDS)
                    break
                except TimeoutError:
                    if starting.done():
                        raise
                    passed = time.monotonic() - begun
                    report(1 - 2 ** (-passed / TYPICAL_START_SECONDS * 3), log.activity())
        config = llm.model_config
        vocabulary = max(int(config.get_vocab_size()), len(llm.get_tokenizer()))
        self._limits = Limits(
            hidden_size=int(config.get_inputs_embeds_size()),
            vocabulary=vocabulary,
            max_length=int(config.max_model_len),
            hears=bool(config.is_multimodal_model),
        )
        return llm

    async def _made(self) -> AsyncLLM:
        """In the loop's thread, where its tasks will run."""
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        options = self.options
        space = options.kv_gigabytes
        if space is None and running_on_cpu():
            space = CPU_KV_GIGABYTES
        arguments: dict[str, Any] = {
            "model": str(options.model),
            "dtype": options.dtype,
            "max_model_len": options.max_length or -1,
            "kv_cache_memory_bytes": None if space is None else int(space * (1 << 30)),
            "tensor_parallel_size": options.tensor_parallel,
            "distributed_executor_backend": "uni" if options.tensor_parallel == 1 else None,
            "enforce_eager": options.eager,
            "generation_config": "vllm",  # what a request does not say is vLLM's default, not the checkpoint's
            "enable_prompt_embeds": True,
            "worker_extension_cls": EXTENSION,
            "trust_remote_code": False,
        }
        config = AsyncEngineArgs(**{**arguments, **options.arguments}).create_engine_config()
        _check_heads(config.model_config)
        return AsyncLLM.from_vllm_config(config, disable_log_stats=True)

    def stop(self) -> None:
        """Ends the engine and its processes; running requests end with `SessionDied`. May be called again."""
        with self._state:
            self._end()

    def _end(self) -> None:
        llm, self._llm = self._llm, None
        if llm is not None:
            with contextlib.suppress(Exception):  # it may be dead already
                llm.shutdown(timeout=STOP_SECONDS)
        self._processes.end()

    def close(self) -> None:
        """As `stop`, for good."""
        self.stop()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_SECONDS)

    def health(self) -> Health:
        """How the engine is now."""
        llm = self._llm
        if self._starting:
            state = "starting"
        elif llm is None:
            state = "stopped"
        else:
            state = "dead" if llm.errored else "ready"
        return Health(state, self._startup_seconds, self._processes.alive, self.log, self._reason)

    @property
    def log(self) -> Path | None:
        """What the engine's processes printed."""
        return self._log.path if self._log else None

    @property
    def dtype(self) -> str:
        """The name of the arithmetic's type."""
        return str(self._running().model_config.dtype).removeprefix("torch.")

    @property
    def limits(self) -> Limits:
        """What the engine takes, as of its last start."""
        if self._limits is None:
            self.start()
        assert self._limits is not None
        return self._limits

    @property
    def requests_at_once(self) -> int:
        """How many requests the engine works on side by side; more of them wait."""
        return int(self._running().vllm_config.scheduler_config.max_num_seqs)

    @property
    def unfinished(self) -> int:
        """How many requests it is at work on, or has waiting."""
        return self._llm.get_num_unfinished_requests() if self._llm is not None else 0

    # Asking it.

    def stream(
        self, requests: Sequence[Request], decodings: Sequence[Decoding], watch: Watch | None = None
    ) -> Generator[tuple[int, list[int]], None, list[Finished]]:
        """Yields (which request, its new ids) as they come, stop ids included; returns how each ended.

        All requests go to the engine at once, which batches them with those of other threads. Closing the iterator
        aborts them there.

        Args:
            decodings: of each request, as of a batch of one.
            watch: told of every token, as of `workbench.pipelines.language.Language`; a row is a request.

        Raises `BadInput` for requests that the engine does not take, before any is sent, and `SessionDied` where it
        ends meanwhile.
        """
        limits = self.limits
        asked = []
        for request, decoding in zip(requests, decodings, strict=True):
            check_request(request, limits)
            asked.append((request, sampling_params(decoding, 0, request.capture)))
        llm = self._running()
        answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        settled = threading.Event()
        following = self._submit(self._followed(llm, asked, answers, settled)).result()
        ends: list[Finished | None] = [None] * len(requests)
        try:
            while None in ends:
                number, answer = answers.get()
                if isinstance(answer, BaseException):
                    raise self._told(llm, answer)
                if isinstance(answer, Finished):
                    ends[number] = answer
                    continue
                ids, steps = answer
                if watch is not None:
                    for step in steps:
                        watch(number, *alternatives_told(step, decodings[number].alternatives))
                yield number, ids
        finally:
            if None in ends:  # requests that are still at work are aborted in the engine
                self._loop.call_soon_threadsafe(following.cancel)
                settled.wait(ABORT_SECONDS)
        return [end for end in ends if end is not None]

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of the worker extension answers: the first worker's answer."""
        llm = self._running()
        try:
            answers: list[Any] = self._submit(llm.collective_rpc(method, args=arguments)).result()
        except Exception as error:
            raise self._told(llm, error) from error
        return answers[0]

    def _running(self) -> AsyncLLM:
        """The engine, started where it does not run."""
        self.start()
        llm = self._llm
        if llm is None:
            raise SessionDied(f"the engine of {self.options.name} was stopped")
        return llm

    async def _followed(
        self,
        llm: AsyncLLM,
        asked: Sequence[tuple[Request, Any]],
        answers: queue.SimpleQueue[tuple[int, Any]],
        settled: threading.Event,
    ) -> asyncio.Future[Any]:
        """Follows every request to its end, and can be cancelled; `settled` is set when none is at work any more."""
        following = asyncio.gather(
            *(self._follow(llm, request, sampling, number, answers) for number, (request, sampling) in enumerate(asked))
        )
        following.add_done_callback(lambda _: settled.set())
        return following

    async def _follow(
        self, llm: AsyncLLM, request: Request, sampling: Any, number: int, answers: queue.SimpleQueue[tuple[int, Any]]
    ) -> None:
        """Puts what comes of one request into the queue."""
        try:
            prompt = await rendered(llm, request)
            stream = llm.generate(prompt, sampling, request_id=f"{self.options.name}-{next(self._numbers)}")
            async with contextlib.aclosing(stream):
                async for output in stream:
                    [piece] = output.outputs
                    if piece.token_ids:
                        answers.put((number, (list(piece.token_ids), piece.logprobs or ())))
                    if output.finished:
                        answers.put((number, Finished(piece.finish_reason or "stop", request.positions)))
        except Exception as error:
            answers.put((number, error))

    def _told(self, llm: AsyncLLM, error: BaseException) -> WorkbenchError:
        """What to raise for an error of vLLM's."""
        if isinstance(error, WorkbenchError):
            return error
        name = self.options.name
        if self._llm is not llm and not self._starting:
            return SessionDied(f"the engine of {name} was stopped")
        if llm.errored:
            self._reason = _how_it_ended(llm, self._log)
            return SessionDied(
                f"the engine of {name} {self._reason}; the next call starts a new one (its log: {self.log})"
            )
        sentence = " ".join(str(error).split())
        from vllm.exceptions import VLLMClientError

        if isinstance(error, (ValueError, VLLMClientError)):
            return BadInput(f"vLLM does not take the request: {sentence}")
        return WorkbenchError(f"the engine of {name} failed: {type(error).__name__}: {sentence}")

    def _submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def _check_heads(config: Any) -> None:
    """Raises `Unavailable` for attention that vLLM has no code for on a processor; the first request would end it."""
    if not running_on_cpu():
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    width, known = int(config.get_head_size()), CPUAttentionBackend.get_supported_head_sizes()
    if width not in known:
        raise Unavailable(
            f"the model's attention heads are {width} wide, and vLLM's attention on a processor knows "
            f"{', '.join(map(str, known))}; open it on pytorch or gguf"
        )


def _how_it_ended(llm: AsyncLLM, log: EngineLog | None) -> str:
    """How the engine's process came to its end, as the end of a sentence."""
    manager = llm.engine_core.resources.engine_manager
    for process in getattr(manager, "processes", ()):
        process.join(STOP_SECONDS)  # its pipe closes a moment before
        if process.exitcode is not None and process.exitcode < 0:
            name = signal.Signals(-process.exitcode).name
            memory = ", as happens when memory runs out" if name == "SIGKILL" else ""
            return f"was ended by {name} at work{memory}"
    reason = raised_in(log.text()) if log else ""
    return f"ended at work: {reason}" if reason else "ended at work"


@contextlib.contextmanager
def open_engine(options: EngineOptions) -> Iterator[Engine]:
    """An engine for as long as the block runs."""
    engine = Engine(options)
    try:
        yield engine
    finally:
        engine.close()
