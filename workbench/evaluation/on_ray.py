"""Workers as actors on a Ray cluster: plain actors, no restarts by Ray, one writer in the driver.

If an actor dies, nothing is lost: the driver (`workbench.evaluation.schedule`) gives its batches to another one. Ray
schedules the actors by CPUs, memory and GPUs; this file says how much of each a model needs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench import __version__
from workbench.core.errors import BadInput, Unavailable, WorkbenchError, message_of
from workbench.core.phrases import counted
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SessionSpec
from workbench.evaluation.child import portable
from workbench.evaluation.models import Chosen
from workbench.evaluation.rows import Result, Utterance
from workbench.evaluation.worker import Job, Worker, is_here, lacking
from workbench.evaluation.workers import Died, Failed, Finished, Opened, Reply
from workbench.registry.budget import estimated_bytes
from workbench.system.atomic_files import ROOM

LOCAL = "local"
CONNECT_SECONDS = 10.0
BOOT, MOUNTS = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/mnt")  # Linux only
OPENING = 0  # the number of the opening, which is not a batch


@dataclass(frozen=True)
class Computed:
    """What an actor made of a batch."""

    worker: str  # its name
    results: list[Result]
    missing: list[str]  # recordings that failed because the actor's machine lacks them


class Actor:
    """A worker on some node. It returns errors instead of raising them, because Ray cannot pickle every error.

    Args:
        driver: `this_machine` of the driver.
    """

    def __init__(self, name: str, driver: str):
        self.name = f"{name}@{socket.gethostname()}"
        self.elsewhere = this_machine() != driver
        self.worker: Worker | None = None

    def open(self, job: Job, version: str) -> float | tuple[type[WorkbenchError], str]:
        """Loads the model; returns the seconds of the load, or an error's class and sentence."""
        start_time = time.perf_counter()
        try:
            if version != __version__:
                raise Unavailable(f"{self.name} has version {__version__} of the workbench; expected {version}")
            self.worker = Worker(job, self.name, elsewhere=self.elsewhere)
        except Exception as error:
            return self._portable(error)
        return time.perf_counter() - start_time

    def compute(self, utterances: Sequence[Utterance]) -> Computed | tuple[type[WorkbenchError], str]:
        """Returns the results of a batch, or an error's class and sentence."""
        try:
            if self.worker is None:
                raise WorkbenchError("the model is not loaded")
            results = list(self.worker.results(utterances))
        except Exception as error:
            return self._portable(error)
        failed = {each.id for each in results if each.error is not None} if self.elsewhere else set()
        root = self.worker.job.root
        return Computed(
            self.name,
            results,
            [each.audio for each in utterances if each.id in failed and not is_here(root, each.audio)],
        )

    def _portable(self, error: Exception) -> tuple[type[WorkbenchError], str]:
        """Returns an error's class and sentence, which names this machine if it is not the driver's."""
        kind, sentence = portable(error)
        return kind, sentence if self.name in sentence or not self.elsewhere else f"{self.name}: {sentence}"


def this_machine() -> str:
    """Returns a text that tells machines of one name apart, and containers of one machine, as their files differ."""
    boot = BOOT.read_text().strip() if BOOT.exists() else ""
    return f"{socket.gethostname()} {boot} {MOUNTS.readlink() if MOUNTS.is_symlink() else ''}"


class RayWorkers:
    """See `workbench.evaluation.workers.Workers`.

    Args:
        address: of the cluster, `auto`, or `local` for one on this machine, which ends with these workers. A program
            that has connected already uses its own connection.
        models: those that will run; a model that fits on no node is refused at once.

    Raises `Unavailable` if Ray is not installed, the cluster cannot be reached, or a model fits on no node.
    """

    def __init__(self, address: str, models: Sequence[Chosen]):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Otherwise Ray 2 would kill a worker because of the memory of other programs.
        os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
        # Otherwise Ray would start a cluster on this machine when the connection to another one is lost.
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault(
            "RAY_worker_niceness", "0"
        )  # with Ray's default of 15, actors get too little time beside other programs
        try:
            import ray
        except ImportError as error:
            raise Unavailable(
                'an evaluation on a Ray cluster needs Ray; run: pip install "speech-workbench[ray]"'
            ) from error
        self._ray = ray
        self._address = address
        self._own = not ray.is_initialized()
        if self._own:
            self._connect(address)
        try:
            self._needs = {each.key: needs(each.spec, "GPU" in ray.cluster_resources()) for each in models}
            self._nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            for key, need in self._needs.items():
                if not any(_fits(need, node) for node in self._nodes):
                    raise Unavailable(
                        f"no node of the Ray cluster has room for {key}, which needs {_words(need)}; "
                        f"{self.place} has {_largest(self._nodes)}"
                    )
            self._actor = ray.remote(Actor)
        except BaseException:
            self.close()
            raise
        self._actors: dict[int, Any] = {}
        self._root = ""  # of the corpus
        self._waiting: dict[Any, tuple[int, int]] = {}  # by the awaited reference: the worker and the batch

    def _connect(self, address: str) -> None:
        if address == LOCAL:
            arguments: dict[str, Any] = {"include_dashboard": False}
        elif address == "auto" or "://" in address or ":" in address:
            arguments = {"address": address}
        else:
            raise BadInput(f"{address!r:.80} is not a Ray cluster's address; expected auto, local or ray://HOST:PORT")
        try:
            _check_port(address)
            with warnings.catch_warnings(action="ignore"):  # one sentence is enough
                self._ray.init(**arguments, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # ConnectionError, RuntimeError, ValueError and others
            raise Unavailable(
                f"the Ray cluster {address} cannot be reached: {_full_disk() or message_of(error)}"
            ) from error

    @property
    def place(self) -> str:
        """Where the workers run, in words."""
        return f"a Ray cluster of {counted(len(self._nodes), 'node')}"

    @property
    def usual_count(self) -> int:
        """Returns how many workers of the largest model fit on the cluster."""
        return max(1, min(sum(_times(need, node) for node in self._nodes) for need in self._needs.values()))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Raises `Unavailable` if the connection to the cluster is lost, or is lost in the block."""
        try:
            if not self._ray.is_initialized():
                raise ConnectionError("the connection has ended")
            yield
        except Exception as error:  # without a connection, Ray raises errors of several kinds
            if not isinstance(error, ConnectionError) and self._ray.is_initialized():
                raise
            raise Unavailable(
                f"the Ray cluster {self._address} cannot be reached any more: {message_of(error).rstrip('.')}; "
                "when it runs again, the same command continues the evaluation"
            ) from error

    def start(self, number: int, job: Job) -> None:
        """Asks Ray for an actor; it starts where there is room."""
        self._root = job.root
        cpus, memory, gpus = self._needs[job.key]
        with self._connected():
            actor = self._actor.options(
                num_cpus=cpus,
                memory=memory,
                num_gpus=gpus,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy="SPREAD",
            ).remote(f"ray-{number}", this_machine())
            self._actors[number] = actor
            opening: Any = actor.open
            self._waiting[opening.remote(job, __version__)] = number, OPENING

    def submit(self, number: int, batch: int, utterances: Sequence[Utterance]) -> None:
        """Sends a batch to an actor. If the actor is gone, a reply that says so will come."""
        with self._connected():
            self._waiting[self._actors[number].compute.remote(list(utterances))] = number, batch

    def replies(self, seconds: float) -> list[Reply]:
        """Waits up to `seconds` for actors to finish something, and returns their replies.

        Raises `Unavailable` if a machine lacks a recording that this machine has, or if the cluster is gone.
        """
        if not self._waiting:
            time.sleep(seconds)
            return []
        with self._connected():
            return self._received(seconds)

    def _received(self, seconds: float) -> list[Reply]:
        ready, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(list(self._waiting), num_returns=len(self._waiting), timeout=0)
        replies: list[Reply] = []
        for each in ready:
            if each not in self._waiting:  # another reply has already said that this worker is gone
                continue
            number, batch = self._waiting.pop(each)
            reply = self._reply(number, batch, each)
            if isinstance(reply, (Died, Failed)):
                self.end(number)
            replies.append(reply)
        return replies

    def _reply(self, number: int, batch: int, each: Any) -> Reply:
        try:
            value = self._ray.get(each)
        except self._ray.exceptions.RayError as error:
            if getattr(error, "actor_init_failed", False) or isinstance(error, self._ray.exceptions.RayTaskError):
                return Failed(number, _cannot_start(error))
            return Died(number, f"was lost ({'; '.join(filter(None, (type(error).__name__, _full_disk())))})")
        if isinstance(value, tuple):
            kind, sentence = value
            return Failed(number, kind(sentence))
        if batch == OPENING:
            return Opened(number, value)
        for audio in value.missing:
            if is_here(self._root, audio):
                raise lacking(value.worker, self._root, audio)
        return Finished(number, batch, value.results, True)

    def end(self, number: int) -> None:
        """Ends an actor at once."""
        actor = self._actors.pop(number, None)
        self._waiting = {each: which for each, which in self._waiting.items() if which[0] != number}
        if actor is not None and self._ray.is_initialized():
            with contextlib.suppress(Exception):  # it may be gone
                self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """Ends all actors, and the connection if it was made here."""
        for number in list(getattr(self, "_actors", {})):
            self.end(number)
        if self._own:
            self._ray.shutdown()


def _cannot_start(error: Exception) -> Unavailable:
    """Returns the error of an actor whose own code, such as the import of the workbench, failed on its machine."""
    text = str(error).strip()
    machine = re.search(r"\bip=([^\s,)]+)", text)
    return Unavailable(
        f"a worker{f' on the machine {machine[1]}' if machine else ''} does not start: {text.splitlines()[-1]:.300}; "
        "install the same version of the workbench, with all that it needs, on every machine"
    )


def _full_disk() -> str:
    """Returns a sentence if Ray's folder on this machine has no space left, which Ray's own errors do not say."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    return "" if free >= ROOM else f"the disk of {folder}, where Ray writes, is full; make room, or set RAY_TMPDIR"


def _check_port(address: str) -> None:
    """Raises `OSError` or `ValueError` if nothing listens at HOST:PORT; Ray itself would try for minutes."""
    place = address.removeprefix("ray://")
    if "://" in place or ":" not in place:
        return
    parts = urlsplit(f"//{place}")
    if parts.port is not None:
        socket.create_connection((parts.hostname or "", parts.port), CONNECT_SECONDS).close()


Need = tuple[int, int, int]
"""CPUs, bytes of memory and GPUs."""


def needs(spec: SessionSpec, gpus: bool) -> Need:
    """Returns the resources that an actor with a model needs from Ray.

    Args:
        gpus: whether the cluster has GPUs.
    """
    settings = spec.settings
    on_gpu = settings.device.startswith("cuda") or (gpus and RUNTIMES[spec.runtime].parallel and spec.server is None)
    return settings.threads or 1, estimated_bytes(spec), settings.tensor_parallel if on_gpu else 0


def _times(need: Need, node: dict[str, float]) -> int:
    """Returns how many workers with this need fit into the resources of a node."""
    cpus, memory, gpus = need
    fits = [node.get("CPU", 0.0) // cpus, node.get("memory", 0.0) // max(memory, 1)]
    return int(min([*fits, node.get("GPU", 0.0) // gpus] if gpus else fits))


def _fits(need: Need, node: dict[str, float]) -> bool:
    return _times(need, node) >= 1


def _largest(nodes: Sequence[dict[str, float]]) -> str:
    """Returns in words what the node with the most of everything has."""
    gpus, cpus, memory = max((node.get("GPU", 0.0), node.get("CPU", 0.0), node.get("memory", 0.0)) for node in nodes)
    return ("at most " if len(nodes) > 1 else "") + _words((int(cpus), int(memory), int(gpus)))


def _words(need: Need) -> str:
    cpus, memory, gpus = need
    also = f" and {counted(gpus, 'GPU')}" if gpus else ""
    return f"{counted(cpus, 'processor')}, {memory / 1e9:.1f} GB of memory{also}"
