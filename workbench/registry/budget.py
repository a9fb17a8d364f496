"""How much memory all sessions together may have, and which session is unloaded if the next one does not fit.

It knows processes and their sizes, but neither models nor cards.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from workbench.core.errors import BadInput, Unavailable
from workbench.core.progress import report
from workbench.core.runtimes import CPU_KV_GIGABYTES, RUNTIMES
from workbench.core.settings import SessionSpec
from workbench.formats.weight_files import file_bytes, weight_files
from workbench.isolation.base import BEAT_SECONDS, IsolatedSession
from workbench.isolation.threads import in_threads
from workbench.prepared.pool import PREPARED
from workbench.system.memory import machine_bytes

SHARE = 0.8  # of the machine's memory
PROCESS_BYTES = 400 << 20  # a process with a runtime's libraries loaded, before any weights
ASKING_BYTES = 150 << 20  # a process that asks a server
ENGINE_BYTES = 1500 << 20  # an engine's processes and their front end together, each with the libraries
WORKER_BYTES = 500 << 20  # each further process of an engine, where several devices share the model
WEIGHTS_FACTOR = 1.3  # weights and working memory, per byte of weights
FLOAT_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}  # per value, by the type's name in safetensors files
MIN_BYTES = min(FLOAT_BYTES.values())
DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}  # per value at work
MAX_HEADER_BYTES = 100 << 20  # a file that claims more is damaged


class MemoryBudget:
    """Lets sessions load within a number of bytes.

    Args:
        total: the bytes that all sessions together may have resident.
        sessions: returns the open sessions.
        wait_for_memory: a new session waits until sessions at work leave room for it; otherwise it is refused.
    """

    def __init__(self, total: int, sessions: Callable[[], Sequence[IsolatedSession]], wait_for_memory: bool = False):
        self.total = total
        self._sessions = sessions
        self._wait_for_memory = wait_for_memory
        self._lock = threading.Lock()
        self._loading: dict[IsolatedSession, int] = {}  # bytes that they will need and do not have yet
        # Bytes of the other models that calls have loaded, or will load, into a session's process.
        self._guests: weakref.WeakKeyDictionary[IsolatedSession, int] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def admitted(self, newcomer: IsolatedSession) -> Iterator[None]:
        """A context in which a new session loads. Unloads sessions, least recently used first, until it fits.

        Raises `Unavailable`, and unloads nothing, if the session cannot fit beside the sessions at work. With
        `wait_for_memory` it waits for them instead and reports that as progress; the listener may raise to stop.
        """
        self._wait(lambda: self._admit(newcomer))
        try:
            yield
        finally:
            with self._lock:
                del self._loading[newcomer]

    def host(self, session: IsolatedSession, guest: SessionSpec | None) -> None:
        """Makes room for a second model that the next call of a session loads into the session's process.

        The model counts until the process ends or hosts another one. Raises what `admitted` raises.

        Args:
            session: the host.
            guest: the second model; None if the call needs none.
        """
        if guest is not None:
            self._wait(lambda: self._take_in(session, guest))
        elif not session.loaded:
            self._guests.pop(session, None)

    def _wait(self, admit: Callable[[], str | None]) -> None:
        """Waits until there is room, which means that `admit` returns None."""
        while (memory_users := admit()) is not None:
            if not self._wait_for_memory:
                raise Unavailable(f"{memory_users}; wait for them, or set WORKBENCH_MEMORY_GB to allow more")
            report(0.0, f"waiting for memory: {memory_users}")
            time.sleep(BEAT_SECONDS)

    def _admit(self, newcomer: IsolatedSession) -> str | None:
        """Makes room for a new session and counts it; returns None, or what takes the memory."""
        with self._lock:
            need = self._expected(newcomer)
            memory_users = self._make_room(newcomer, need)
            if memory_users is None:
                self._loading[newcomer] = need
            return memory_users

    def _take_in(self, session: IsolatedSession, guest: SessionSpec) -> str | None:
        """Makes room for a second model and counts it; returns None, or what takes the memory."""
        with self._lock:
            guest_size, before = guest_bytes(guest), self._guests.get(session, 0)
            if session.loaded and guest_size == before:
                return None
            self._guests[session] = guest_size
            memory_users: str | None = None
            try:
                memory_users = self._make_room(session, self._expected(session), f"{session.model} with {guest.name}")
            except Unavailable:
                self._guests[session] = before
                raise
            if memory_users is not None:
                self._guests[session] = before
            return memory_users

    def _expected(self, session: IsolatedSession) -> int:
        """Returns the bytes that a session will need, with its second model."""
        return estimated_bytes(session.spec) + self._guests.get(session, 0)

    def _make_room(self, newcomer: IsolatedSession, need: int, name: str = "") -> str | None:
        name = name or newcomer.model
        if need > self.total:
            raise Unavailable(
                f"{name} needs about {_gigabytes(need)}, more than the {_gigabytes(self.total)} that all "
                f"sessions may have; set WORKBENCH_MEMORY_GB to allow more"
            )
        bytes_of = {each: self._bytes_of(each) for each in self._sessions() if each is not newcomer}
        resting = sorted(
            (each for each in bytes_of if bytes_of[each] and not each.busy), key=lambda each: each.last_used
        )
        at_work = sum(bytes_of.values()) - sum(bytes_of[each] for each in resting)
        allowed = self.total - PREPARED.memory_bytes
        if need + sum(bytes_of.values()) > allowed:
            PREPARED.give_up()  # they hold no model
            allowed = self.total - PREPARED.memory_bytes
        for each in resting:
            if need + at_work > allowed or need + sum(bytes_of.values()) <= allowed:
                break
            if each.unload():  # else a call has just begun
                bytes_of[each] = 0
        if need + sum(bytes_of.values()) > allowed:
            return (
                f"{name} needs about {_gigabytes(need)} and sessions at work hold "
                f"{_gigabytes(sum(bytes_of.values()))} of the {_gigabytes(self.total)} allowed"
            )
        return None

    def _bytes_of(self, session: IsolatedSession) -> int:
        """Returns the bytes that a session has or will soon have: mapped weights become resident at their first use."""
        if session in self._loading:
            return self._loading[session]
        return max(session.memory_bytes, self._expected(session)) if session.pid else 0


def estimated_bytes(spec: SessionSpec) -> int:
    """Returns the bytes that a session will have resident, estimated from the size of its weight files.

    Weights that are mapped from their file count like any others: a session at work needs them in memory. An engine
    has room for keys and values beside them, in each of its workers.
    """
    if spec.server is not None:
        return 0 if in_threads(spec) else ASKING_BYTES
    runtime, settings = RUNTIMES.get(spec.runtime), spec.settings
    if runtime is None or not runtime.parallel:
        return PROCESS_BYTES + int(WEIGHTS_FACTOR * _working_bytes(spec))
    processes = ENGINE_BYTES + (settings.tensor_parallel - 1) * WORKER_BYTES
    kv_gigabytes = CPU_KV_GIGABYTES if settings.kv_gigabytes is None else settings.kv_gigabytes
    return (
        processes
        + settings.tensor_parallel * int(kv_gigabytes * (1 << 30))
        + int(WEIGHTS_FACTOR * _working_bytes(spec))
    )


def guest_bytes(spec: SessionSpec) -> int:
    """Returns the bytes that a model takes in another session's process, which has the libraries already."""
    runtime = RUNTIMES.get(spec.runtime)
    is_engine = runtime is not None and runtime.parallel  # an engine starts processes of its own
    return estimated_bytes(spec) - (0 if is_engine else PROCESS_BYTES)


def weight_bytes(spec: SessionSpec) -> int:
    """Returns the size of a session's weight files in bytes; 0 for a model on a server."""
    if spec.server is not None:
        return 0
    language = spec.settings.language_file
    return file_bytes(spec.checkpoint) + (file_bytes(language) if language else 0)


def _working_bytes(spec: SessionSpec) -> int:
    """Returns the bytes of a session's weights in the type that it computes in."""
    width = DTYPE_BYTES.get(spec.settings.dtype)
    if spec.server is not None or width is None:
        return weight_bytes(spec)
    return weight_bytes(spec) + sum(_wider_by(path, width) for path in weight_files(spec.checkpoint))


def _wider_by(path: Path, width: int) -> int:
    """Returns how many more bytes a file's tensors take with `width` bytes per value; 0 for an incomplete file.

    Only safetensors files name their types quickly. For other files, this assumes that they hold float32.
    """
    if path.suffix != ".safetensors":
        return path.stat().st_size * max(width - FLOAT_BYTES["F32"], 0) // FLOAT_BYTES["F32"]
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            tensors = json.loads(file.read(length)) if length <= MAX_HEADER_BYTES else {}
        known = [each for each in tensors.values() if isinstance(each, dict) and each.get("dtype") in FLOAT_BYTES]
        wider = sum(math.prod(each["shape"]) * (width - FLOAT_BYTES[each["dtype"]]) for each in known)
        size_bytes = path.stat().st_size
        largest = size_bytes * (width - MIN_BYTES) // MIN_BYTES
        return max(-size_bytes, min(wider, largest))  # whatever the header claims
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError):
        return 0  # opening the file later reports the error


def default_budget() -> int:
    """$WORKBENCH_MEMORY_GB, or four fifths of the machine's memory; raises `BadInput` if it is not a size."""
    value = os.environ.get("WORKBENCH_MEMORY_GB")
    if not value:
        return int(machine_bytes() * SHARE)
    try:
        budget = float(value)
    except ValueError:
        budget = 0.0
    if not 0 < budget < float("inf"):
        raise BadInput(f"WORKBENCH_MEMORY_GB is {value!r}; expected a number of gigabytes")
    return int(budget * (1 << 30))


def _gigabytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GB"
