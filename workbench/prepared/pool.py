"""Prepared processes, which have imported what sessions need, so that a session starts in a moment by a fork.

A session on PyTorch imports for some seconds before it reads its model, and one on vLLM for longer; forked from a
prepared process it starts in a moment. There is one prepared process for each kind of session
(`workbench.prepared.kinds`). It starts when it is first wanted, or early with `start`, and ends with this process.
`workbench.prepared.process` is the other end.

The page, the server and comparisons use them, because they open several sessions. Elsewhere they are off. The
environment variable WORKBENCH_PREPARED turns them on (1) or off (0) everywhere. Where a prepared process cannot be
used, sessions start without it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from workbench.core.progress import report
from workbench.core.runtimes import RUNTIMES
from workbench.prepared.kinds import Kind, is_read_early, session_environment
from workbench.prepared.process import READY, STATUS, WORKER, Order
from workbench.system.memory import share_bytes
from workbench.system.process_groups import end_group

SWITCH = "WORKBENCH_PREPARED"
MODULE = "workbench.prepared.process"
STARTED_EARLY = tuple(Kind(runtime, language) for runtime in ("pytorch", "gguf") for language in (False, True))
"""The kinds whose prepared processes start with a page or a server, in this order. Processes without a language model
are ready sooner."""
BEAT_SECONDS = 0.25  # how often a caller that waits for the imports gets progress, and can stop
FORK_SECONDS = 20.0  # a prepared process that forks nothing for so long is given up
END_SECONDS = 2.0  # how long one without sessions may take to end

log = logging.getLogger(__name__)


class ForkedProcess:
    """A process that a prepared process has forked, with the methods of `subprocess.Popen` that a session uses."""

    def __init__(self, pid: int, status: int):
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._reading = threading.Lock()
        _close_with(self, os.close, status)  # not sooner: another thread may wait for it
        try:
            self._handle: int | None = os.pidfd_open(pid)
            _close_with(self, os.close, self._handle)
        except ProcessLookupError:  # it has ended already, and its number may be another's
            self._handle = None

    def poll(self) -> int | None:
        """Returns how it ended: its exit status, or the negative number of the signal; None while it runs."""
        with self._reading:
            if self.returncode is None and _readable(self._status, 0.0):
                status = os.read(self._status, STATUS.size)
                # A prepared process that is killed takes what it has forked with it.
                self.returncode = STATUS.unpack(status)[0] if status else -signal.SIGKILL
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the status; raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        if self.poll() is None and not _readable(self._status, timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        ended = self.poll()
        assert ended is not None
        return ended

    def kill(self) -> None:
        """Ends the process at once; nothing happens if it has ended."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)


class PreparedProcess:
    """One prepared process.

    Args:
        fixed: what it is started with and its sessions cannot change; see `_fixed_at_start`.
    """

    def __init__(self, kind: Kind, environment: Mapping[str, str], fixed: object):
        self.fixed = fixed
        self.ready = False
        self.reason = ""  # why it cannot be used
        self._forked: weakref.WeakSet[ForkedProcess] = weakref.WeakSet()
        self._socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _close_with(self, self._socket.close)  # not sooner: another thread may wait for it
        with child_socket:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(child_socket.fileno()), kind.runtime],
                pass_fds=[child_socket.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                env=dict(environment),
                start_new_session=True,
            )
        with contextlib.suppress(OSError):
            self._socket.send(pickle.dumps(kind))

    def wait_until_imported(self, seconds: float | None) -> bool:
        """Waits at most `seconds`, or without limit (None), for the imports; returns whether they have ended."""
        if not (self.ready or self.reason) and _readable(self._socket.fileno(), seconds):
            with contextlib.suppress(BlockingIOError):  # another thread was first
                message = self._received()
                self.ready = message == READY
                self.reason = "" if self.ready else message or "it ended"
        return self.ready or bool(self.reason)

    def _received(self) -> str:
        try:
            return self._socket.recv(1 << 16, socket.MSG_DONTWAIT).decode()
        except ConnectionError:
            return ""

    def fork(self, order: Order, session: int, errors: int) -> ForkedProcess | None:
        """Returns a new process with the file `session` that prints to the file `errors`; None if that fails."""
        status, status_writer = os.pipe()
        try:
            socket.send_fds(self._socket, [pickle.dumps(order)], [session, errors, status_writer])
        except OSError as error:
            os.close(status)
            self.reason = self.reason or str(error)
            return None
        finally:
            os.close(status_writer)
        first_status = os.read(status, STATUS.size) if _readable(status, FORK_SECONDS) else b""
        if not first_status:
            os.close(status)  # if it is forked after all, it finds its socket closed and ends
            self.reason = self.reason or "it forks no process"
            return None
        forked = ForkedProcess(STATUS.unpack(first_status)[0], status)
        self._forked.add(forked)
        return forked

    @property
    def memory_bytes(self) -> int:
        """The resident memory of the process in bytes, without the memory that it shares with its sessions."""
        return share_bytes(self._process.pid) if self._process.poll() is None else 0

    @property
    def in_use(self) -> bool:
        """Whether one of its forked processes still runs."""
        return self._process.poll() is None and any(each.poll() is None for each in list(self._forked))

    def close(self) -> None:
        """Ends the process, or makes it end after its last forked process."""
        self.reason = self.reason or "it was closed"
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self.in_use:
            return
        if self.ready:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        self._process.kill()
        self._process.wait()
        end_group(self._process.pid)


class PreparedProcesses:
    """The prepared processes by kind, for all sessions of this process. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._on: bool | None = None  # None: as the environment says
        self._processes: dict[Kind, PreparedProcess] = {}
        self._useless: set[Kind] = set()
        self._lingering: list[PreparedProcess] = []  # closed, with sessions that still run

    def use(self, on: bool = True) -> None:
        """Turns prepared processes on or off for new sessions; overrides the environment."""
        with self._lock:
            self._on = on
            self._useless.clear()

    @property
    def on(self) -> bool:
        """Whether sessions use prepared processes. Only Linux forks safely."""
        on = os.environ.get(SWITCH) == "1" if self._on is None else self._on
        return on and sys.platform == "linux"

    def start(self, kinds: Sequence[Kind]) -> None:
        """Starts prepared processes before a session wants them, one after the other; returns at once."""

        def start_all() -> None:
            for kind in kinds:
                process = self._process_for(kind)
                if process is not None:
                    process.wait_until_imported(None)

        threading.Thread(target=start_all, name="prepared processes", daemon=True).start()

    def wait_for(self, kind: Kind | None, name: str) -> None:
        """Starts the prepared process of a kind if there is none, and returns when it is ready or has failed.

        Whoever listens (`workbench.core.progress`) is told that `name` loads, and may raise to end the wait.
        """
        process = self._process_for(kind) if kind is not None else None
        while process is not None and not process.wait_until_imported(BEAT_SECONDS):
            report(0.0, f"loading {name}")

    def is_ready(self, kind: Kind | None) -> bool:
        """Returns whether there is a prepared process of a kind that can fork at once."""
        with self._lock:
            process = self._process_for(kind) if kind in self._processes else None
        return process is not None and process.wait_until_imported(0.0) and process.ready and not process.reason

    def fork(
        self,
        kind: Kind | None,
        words: Sequence[str],
        environment: Mapping[str, str],
        session: int,
        module: str = WORKER,
        errors: int = 2,
    ) -> ForkedProcess | None:
        """Returns a forked process of a kind with the file `session`; None if the process must start in another way.

        Args:
            words: its arguments, which a list of processes shows, too.
            module: whose function `serve` runs in the process and takes the number of the file.
            errors: the file that the process prints to.
        """
        process = self._process_for(kind) if kind is not None else None
        if kind is None or process is None or not process.wait_until_imported(0.0):
            return None
        if process.ready and not process.reason:
            order = Order(dict(environment), _folder(), tuple(words), module)
            forked = process.fork(order, session, errors)
            if forked is not None:
                return forked
        with self._lock:
            if self._processes.get(kind) is process:  # else another has taken its place
                log.info("a session on %s starts without a prepared process: %s", kind.runtime, process.reason)
                self._end(self._processes.pop(kind))
                if not process.ready:  # else it was killed, and another may do
                    self._useless.add(kind)
        return None

    def _process_for(self, kind: Kind) -> PreparedProcess | None:
        """Returns the prepared process of a kind, started if need be; None where there is none."""
        with self._lock:
            if not self.on or kind in self._useless:
                return None
            environment = session_environment(kind.parallel)
            fixed = _fixed_at_start(environment)
            process = self._processes.get(kind)
            if process is not None and process.fixed != fixed:
                self._end(self._processes.pop(kind))
                process = None
            if process is None:
                try:
                    atexit.unregister(self.close)
                    atexit.register(self.close)
                    process = self._processes[kind] = PreparedProcess(kind, environment, fixed)
                except OSError as error:
                    log.info("no prepared process: %s", error)
                    self._useless.add(kind)
            return process

    @property
    def memory_bytes(self) -> int:
        """The resident memory of all prepared processes in bytes, without the memory shared with their sessions."""
        with self._lock:
            return sum(each.memory_bytes for each in (*self._processes.values(), *self._lingering))

    def give_up(self) -> None:
        """Ends the prepared processes, because memory is short; sessions start without them until the next `use`."""
        with self._lock:
            self._useless |= self._processes.keys()
            self._end_all()

    def close(self) -> None:
        """Ends the prepared processes and turns them off."""
        with self._lock:
            self._on = False
            self._end_all()

    def _end_all(self) -> None:
        while self._processes:
            self._end(self._processes.popitem()[1])

    def _end(self, process: PreparedProcess) -> None:
        self._lingering = [each for each in self._lingering if each.in_use]
        process.close()
        if process.in_use:
            self._lingering.append(process)


def _fixed_at_start(environment: Mapping[str, str]) -> object:
    """Returns what a prepared process has from its start and a forked process cannot change any more.

    That is the environment that libraries read while they are imported, and what the system grants a process.
    """
    import resource  # not on every system

    variables = {name: value for name, value in environment.items() if is_read_early(name)}
    limits = [
        resource.getrlimit(number) for name, number in sorted(vars(resource).items()) if name.startswith("RLIMIT_")
    ]
    return variables, limits, os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0), _umask()


def _folder() -> str:
    """Returns the folder that this process works in; the same by another name where it was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return "."


def _umask() -> str:
    """Returns the mask of new files' permissions from /proc, the only place that shows it without a change."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith("Umask:")), "")


def _close_with(owner: object, close: Callable[..., object], *file: int) -> None:
    """Closes a file when nobody refers to its owner any more; at the end of the program the system does."""
    weakref.finalize(owner, close, *file).atexit = False


def _readable(file: int, seconds: float | None) -> bool:
    """Waits until the file can be read or has ended; returns whether it can."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(None if seconds is None else int(1000 * seconds)))


PREPARED = PreparedProcesses()


@contextlib.contextmanager
def prepared_processes(*, early: bool = True) -> Iterator[None]:
    """Makes sessions inside the block use prepared processes, unless the environment turns them off.

    The processes end with the block, unless they were in use before it.

    Args:
        early: the processes of `STARTED_EARLY` start one after another, before a session needs them. Otherwise each
            starts with the first session of its kind.
    """
    were_on = PREPARED.on
    if os.environ.get(SWITCH) != "0":
        if not were_on:  # else those that were given up would start again
            PREPARED.use()
        if early:
            PREPARED.start([kind for kind in STARTED_EARLY if RUNTIMES[kind.runtime].missing(kind.language) is None])
    try:
        yield
    finally:
        if not were_on:
            PREPARED.close()
