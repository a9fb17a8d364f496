"""One vLLM engine: starts it, watches it, serves requests of many threads, and restarts it when it dies.

vLLM computes in separate processes. This file connects their front end with the session: plain requests in, token ids
out as they are generated. It knows no model.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Coroutine, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.core.errors import SessionDied, Unavailable, WorkbenchError
from workbench.core.progress import report
from workbench.core.runtimes import CPU_KV_GIGABYTES
from workbench.decoding.alternatives import Watch
from workbench.decoding.generation import Decoding
from workbench.runtimes.vllm.engine.environment import environment, running_on_cpu
from workbench.runtimes.vllm.engine.forking import forked, inspecting_here, single_threaded
from workbench.runtimes.vllm.engine.log import EngineLog, reason_of
from workbench.runtimes.vllm.engine.loop_thread import LoopThread
from workbench.runtimes.vllm.engine.nan_requests import refuse_nan_logits
from workbench.runtimes.vllm.engine.processes import Processes, how_it_ended
from workbench.runtimes.vllm.engine.running_requests import Finished, RunningRequests, limits_of, request_error, room_of
from workbench.runtimes.vllm.requests.request import Limits, Request, check_request
from workbench.runtimes.vllm.requests.sampling import likeliest_of, sampling_params
from workbench.system.forks import forks_allowed

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

EXTENSION = "workbench.runtimes.vllm.capture.extension.Extension"
CHECK_SECONDS = 0.1  # between checks of the progress of a start
TYPICAL_START_SECONDS = 60.0  # on a CPU; only used to show progress
STOP_SECONDS = 5.0  # for vLLM to end its processes

Result = TypeVar("Result")


@dataclass(frozen=True)
class EngineOptions:
    """The options to start an engine with; see `workbench.core.settings.Settings`."""

    model: Path  # a directory that vLLM loads
    name: str  # the model's name in messages and in the log
    dtype: str = "float32"
    max_length: int | None = None  # None: the model's own, or as much as the KV cache has room for
    kv_gigabytes: float | None = None  # size of the KV cache; None: 1 on a CPU, the free memory on a GPU
    tensor_parallel: int = 1
    eager: bool = True
    threads: int | None = None
    arguments: dict[str, Any] = field(default_factory=dict)  # more arguments of vLLM


@dataclass(frozen=True)
class Health:
    """The state of an engine."""

    state: str  # stopped, starting, ready or dead
    pids: tuple[int, ...]  # ids of its processes
    log: Path | None
    reason: str = ""  # why it could not start, or why it died


class Engine:
    """An engine in separate processes; every method may be called from any thread.

    `stream` and `call` start it if it does not run.
    """

    def __init__(self, options: EngineOptions):
        self.options = options
        self._state = threading.RLock()  # locked while the engine starts or stops
        self._llm: AsyncLLM | None = None
        self._processes = Processes()
        self._log: EngineLog | None = None
        self._limits: Limits | None = None
        self._reason = ""
        self._starting = False
        self._patience = STOP_SECONDS
        self._loops: list[LoopThread] = []  # the last one runs vLLM's front end, the one before what it began

    # Start and stop.

    def start(self) -> None:
        """Starts the engine if it does not run; reports progress through `workbench.core.progress`.

        Raises `Unavailable` with vLLM's own reason if it cannot start.
        """
        with self._state:
            if self._llm is not None and not self._llm.errored:
                return
            self._end()
            self._starting, self._reason = True, ""
            if self._log is None:
                self._log = EngineLog.open(self.options.name)
            self._log.begin()
            self._renew_loop()
            try:
                self._llm = self._start_llm(self._log)
            except BaseException as error:
                self._processes.end()
                if isinstance(error, WorkbenchError) or not isinstance(error, Exception):
                    raise  # the caller was cancelled
                self._reason = reason_of(error, self._log)
                raise Unavailable(
                    f"vLLM cannot start {self.options.name}: {self._reason} (its log: {self._log.path})"
                ) from error
            finally:
                self._starting = False

    def _renew_loop(self) -> None:
        """Begins the loop of the next start in a new thread, as only such a thread can fork the engine.

        The loop before it goes on: a request may be about to begin there, and has to get its error.
        """
        self._loops.append(LoopThread("vllm-loop"))
        while len(self._loops) > 2:
            self._loops.pop(0).stop(STOP_SECONDS)

    def _start_llm(self, log: EngineLog) -> AsyncLLM:
        start_time = time.monotonic()
        with environment(self.options.threads, self.options.eager), log.captured(), self._processes.watched():
            starting = self._submit(self._create())
            while True:
                try:
                    llm = starting.result(CHECK_SECONDS)
                    break
                except TimeoutError:
                    if starting.done():
                        raise
                    seconds = time.monotonic() - start_time
                    report(1 - 2 ** (-seconds / TYPICAL_START_SECONDS * 3), log.activity())
        self._limits = limits_of(llm)
        refuse_nan_logits(llm)
        return llm

    async def _create(self) -> AsyncLLM:
        """Creates vLLM's front end in the loop's thread, where its tasks will run."""
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
            "generation_config": "vllm",  # a request's missing values take vLLM's defaults, not the checkpoint's
            "enable_prompt_embeds": True,
            # A directory of Mistral may hold the model in two forms, and vLLM would prefer the one that is not checked.
            "config_format": "hf",
            "load_format": "safetensors",
            "tokenizer_mode": "hf",
            "worker_extension_cls": EXTENSION,
            "trust_remote_code": False,
        }
        may_fork = forks_allowed() and running_on_cpu()
        with contextlib.ExitStack() as fork:
            if may_fork:
                fork.enter_context(single_threaded())
                fork.enter_context(inspecting_here())
            config = AsyncEngineArgs(**{**arguments, **options.arguments}).create_engine_config()
            _check_heads(config.model_config)
            # The process of a forked engine has nothing but memory to give back, and vLLM's orderly end would search it
            # for garbage first, for seconds.
            self._patience = 0.0 if may_fork and fork.enter_context(forked(config)) else STOP_SECONDS
            return AsyncLLM.from_vllm_config(config, disable_log_stats=True)

    def stop(self) -> None:
        """Ends the engine and its processes; running requests end with `SessionDied`. May be called again."""
        with self._state:
            self._end()

    def _end(self) -> None:
        llm, self._llm = self._llm, None
        if llm is not None:
            with contextlib.suppress(Exception):  # it may be dead already
                llm.shutdown(timeout=self._patience)
        self._processes.end()

    def close(self) -> None:
        """Stops the engine like `stop`, and for good."""
        self.stop()
        for loop in self._loops:
            loop.stop(STOP_SECONDS)

    def health(self) -> Health:
        """Returns the engine's present state."""
        llm = self._llm
        if self._starting:
            state = "starting"
        elif llm is None:
            state = "stopped"
        else:
            state = "dead" if llm.errored else "ready"
        return Health(state, self._processes.alive, self.log, self._reason)

    @property
    def log(self) -> Path | None:
        """The file with the output of the engine's processes."""
        return self._log.path if self._log else None

    @property
    def where(self) -> str:
        """The place where the engine reports errors, as a part of a sentence."""
        return f"its log: {self.log}"

    @property
    def dtype(self) -> str:
        """The name of the arithmetic's type."""
        return str(self._running_llm().model_config.dtype).removeprefix("torch.")

    @property
    def limits(self) -> Limits:
        """The limits of requests, from the engine's last start."""
        if self._limits is None:
            self.start()
        assert self._limits is not None
        return self._limits

    @property
    def requests_at_once(self) -> int:
        """The number of requests that the engine computes at once; further ones wait."""
        return int(self._running_llm().vllm_config.scheduler_config.max_num_seqs)

    def room(self, sequences: int) -> int:
        """Returns how many positions each of several sequences may have for all to be in the memory of keys and values
        together.
        """
        return room_of(self._running_llm(), sequences)

    @property
    def unfinished(self) -> int:
        """The number of requests that run or wait."""
        return self._llm.get_num_unfinished_requests() if self._llm is not None else 0

    # Requests.

    def stream(
        self, requests: Sequence[Request], decodings: Sequence[Decoding], watch: Watch | None = None
    ) -> Generator[tuple[int, list[int]], None, list[Finished]]:
        """Yields (index of the request, its new ids) as they are generated, stop ids included; returns how each ended.

        All requests go to the engine at once, which batches them with those of other threads. Closing the iterator
        aborts them.

        Args:
            decodings: of each request, as for a batch of one.
            watch: called with every token, as in `workbench.pipelines.text.language.Language`; a row is a request.

        Raises `BadInput` for requests that the engine does not take, before any is sent, and `SessionDied` if the
        engine ends before the requests do.
        """
        params = [sampling_params(each, 0, request.capture) for request, each in zip(requests, decodings, strict=True)]
        stream = self.follow(requests, params)
        try:
            while True:
                try:
                    number, ids, steps = next(stream)
                except StopIteration as done:
                    ends: list[Finished] = done.value
                    return ends
                if watch is not None:
                    for step in steps:
                        watch(number, *likeliest_of(step, decodings[number].alternatives))
                yield number, ids
        finally:
            stream.close()

    def follow(
        self, requests: Sequence[Request], params: Sequence[SamplingParams]
    ) -> Generator[tuple[int, list[int], Any], None, list[Finished]]:
        """Yields the same as `stream`, and vLLM's log-probabilities of each id, with vLLM's own parameters of requests
        in place of decodings. Raises the same errors.
        """
        limits = self.limits
        for request in requests:
            check_request(request, limits)
        llm, loop = self._llm_and_loop()
        paired = list(zip(requests, params, strict=True))
        running = RunningRequests(
            llm, loop.loop, paired, self.options.name, lambda error: self._convert_error(llm, error)
        )
        return (yield from running.outputs())

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the worker extension and returns the first worker's answer."""
        llm, loop = self._llm_and_loop()
        try:
            answers: list[Any] = loop.submit(llm.collective_rpc(method, args=arguments)).result()
        except Exception as error:
            raise self._convert_error(llm, error) from error
        return answers[0]

    def _running_llm(self) -> AsyncLLM:
        """Returns the running engine; starts it if needed."""
        self.start()
        llm = self._llm
        if llm is None:
            raise SessionDied(f"the engine of {self.options.name} was stopped")
        return llm

    def _llm_and_loop(self) -> tuple[AsyncLLM, LoopThread]:
        """Returns the running engine and the loop of its front end; starts it if needed."""
        with self._state:
            return self._running_llm(), self._loops[-1]

    def _convert_error(self, llm: AsyncLLM, error: BaseException) -> WorkbenchError:
        """Returns the error to raise for an error of vLLM."""
        if isinstance(error, WorkbenchError):
            return error
        name = self.options.name
        if self._llm is not llm and not self._starting:
            return SessionDied(f"the engine of {name} was stopped")
        if llm.errored:
            manager = llm.engine_core.resources.engine_manager
            self._reason = how_it_ended(getattr(manager, "processes", ()), self._log.text() if self._log else "")
            return SessionDied(
                f"the engine of {name} {self._reason}; the next call starts a new one (its log: {self.log})"
            )
        return request_error(error, name)

    def _submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return self._loops[-1].submit(work)


def _check_heads(config: Any) -> None:
    """Raises `Unavailable` for attention that vLLM does not support on a CPU; the first request would end the
    engine.
    """
    if not running_on_cpu():
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    width, supported = int(config.get_head_size()), CPUAttentionBackend.get_supported_head_sizes()
    if width not in supported:
        raise Unavailable(
            f"the model's attention heads are {width} wide, and vLLM's attention on a processor knows "
            f"{', '.join(map(str, supported))}; open it on pytorch or gguf"
        )
