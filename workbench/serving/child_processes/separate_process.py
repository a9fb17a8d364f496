"""Calls functions in a separate process with a memory limit.

The process ends if the visitor of the work leaves. A small file may unpack into much memory (gigabytes from 260 kB), so
the server itself reads no trace. `separate_process_child` is the other end and lists the messages.
This file knows no trace.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar, cast

from workbench.core.errors import OutOfMemory, WorkbenchError
from workbench.core.progress import report
from workbench.core.visitors import check_work
from workbench.prepared.kinds import session_environment
from workbench.serving.child_processes.separate_process_child import ERROR, FAILED, NO_MEMORY, REPORT

MODULE = "workbench.serving.child_processes.separate_process_child"
BEAT_SECONDS = 0.1  # how often the waiting caller checks whether the work should end

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Purpose:
    """The purpose of a process, as words for its messages."""

    name: str  # the subject of a sentence
    activity: str  # told until the function says more
    waiting: str
    instead: str  # what to do if it needs too much memory

    @property
    def too_large(self) -> str:
        """The sentence for a call that needs more memory than the process may take."""
        return f"{self.name} needs more memory than it may have here; {self.instead}"


COMPARISON = Purpose(
    "the comparison", "comparing", "waiting for another comparison", "compare fewer stages, or smaller ones"
)
PICTURE = Purpose("the picture", "drawing", "waiting for another picture", "open a smaller stage")


class SeparateProcess:
    """A `workbench.core.caller.Caller` with one process, which starts with the first call and ends with `close`.

    All calls come from the thread that closes it, as the process ends with that thread.

    Args:
        alone: held during each call; those that share it compute one at a time.
        gigabytes: the memory that the process may take; 0: no limit.
        purpose: what the process is for.
    """

    def __init__(self, alone: threading.Lock, gigabytes: float = 0.0, purpose: Purpose = COMPARISON):
        self._alone, self._gigabytes, self._purpose = alone, gigabytes, purpose
        self._child: tuple[subprocess.Popen[bytes], Connection] | None = None

    def __enter__(self) -> SeparateProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process; a later call starts another one."""
        if self._child is not None:
            process, connection = self._child
            self._child = None
            connection.close()
            process.kill()
            process.wait()

    def __call__(
        self, function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Returns the function's result; raises its `WorkbenchError`, and what the work of this context raises.

        Raises `OutOfMemory` where the process may not take more, and `WorkbenchError` if it failed otherwise.
        """
        payload = pickle.dumps((function, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
        with self._turn():
            try:
                kind, found = self._last_message(payload)
            except BaseException:
                self.close()
                raise
        if kind == ERROR:
            raise found
        if kind == NO_MEMORY:
            raise OutOfMemory(self._purpose.too_large)
        if kind == FAILED:
            raise WorkbenchError(f"{self._purpose.name} failed: {found:.200}")
        return cast(Result, found)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Waits until no other process of the same lock computes."""
        while not self._alone.acquire(timeout=BEAT_SECONDS):
            check_work()
            report(0.0, self._purpose.waiting)
        try:
            yield
        finally:
            self._alone.release()

    def _last_message(self, payload: bytes) -> tuple[str, Any]:
        """Returns the last message of a call. A process that has ended since the last call is replaced."""
        if self._child is not None and self._child[0].poll() is not None:
            self.close()
        process, connection = self._child = self._child or self._start()
        progress = (0.0, self._purpose.activity)
        try:
            connection.send_bytes(payload)
            while True:
                if not connection.poll(BEAT_SECONDS):
                    check_work()
                    report(*progress)  # the listener may end the work
                    continue
                kind, found = _received(connection)
                if kind != REPORT:
                    return kind, found
                progress = found
                report(*progress)
        except (EOFError, ConnectionError):
            raise self._end(process.wait()) from None

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        parent_socket, child_socket = socket.socketpair()
        with parent_socket, child_socket:
            words = [str(child_socket.fileno()), str(os.getpid()), str(int(self._gigabytes * (1 << 30)))]
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", MODULE, *words],
                    pass_fds=[child_socket.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # results are on the socket
                    env=session_environment(parallel=False),
                    start_new_session=True,
                )
            except OSError as error:
                raise WorkbenchError(f"{self._purpose.name} cannot start: {error.strerror or error}") from error
            return process, Connection(parent_socket.detach())

    def _end(self, status: int) -> WorkbenchError:
        """Returns the error for a process that ended in the middle of a call."""
        if status in (-signal.SIGKILL, -signal.SIGABRT):
            ending = f"was ended by {signal.Signals(-status).name}, as happens when memory runs out"
            return OutOfMemory(f"{self._purpose.name} {ending}; try again, or {self._purpose.instead}")
        known = {each.value: each.name for each in signal.Signals}
        ending = f"status {status}" if status >= 0 else known.get(-status, f"signal {-status}")
        return WorkbenchError(f"{self._purpose.name} ended with {ending} before it had a result")


def _received(connection: Connection) -> tuple[str, Any]:
    """Returns the next message; raises `EOFError` if the process has ended, also in the middle of a message."""
    try:
        message: tuple[str, Any] = connection.recv()
    except OSError as error:
        raise EOFError from error
    return message
