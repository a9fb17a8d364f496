"""Calls of functions in a process of their own: with a memory limit, and until whoever asked for the work leaves.

Small files may hold much (gigabytes from 260 kB), so a server itself reads no trace.
`workbench.serving.apart_process` is the other end and lists the messages. This file knows no trace.
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
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar, cast

from workbench.core.errors import OutOfMemory, WorkbenchError
from workbench.core.progress import report
from workbench.core.visitors import check_work
from workbench.prepared.kinds import session_environment
from workbench.prepared.pool import ROOT
from workbench.serving.apart_process import ERROR, FAILED, NO_MEMORY, REPORT

MODULE = "workbench.serving.apart_process"
BEAT_SECONDS = 0.1  # how often whoever waits looks whether the work is to end
COMPARING = "comparing"  # told until the function says more
TOO_LARGE = "the comparison needs more memory than it may have here; compare fewer stages, or smaller ones"

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Apart:
    """A `workbench.core.caller.Caller` with one process, which starts with the first call and ends with `close`.

    All calls come from the thread that closes it, as the process ends with that thread.

    Args:
        alone: held during each call; those that share it compute one at a time.
        gigabytes: the memory that the process may take; 0: no limit.
    """

    def __init__(self, alone: threading.Lock, gigabytes: float = 0.0):
        self._alone, self._gigabytes = alone, gigabytes
        self._link: tuple[subprocess.Popen[bytes], Connection] | None = None

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process; a later call starts another one."""
        if self._link is not None:
            process, connection = self._link
            self._link = None
            connection.close()
            process.kill()
            process.wait()

    def __call__(self, function: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """Returns the function's result; raises its `WorkbenchError`, and what the work of this context raises.

        Raises `OutOfMemory` where the process may not take more, and `WorkbenchError` if it failed otherwise.
        """
        payload = pickle.dumps((function, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
        with self._turn():
            try:
                kind, found = self._answered(payload)
            except BaseException:
                self.close()
                raise
        if kind == ERROR:
            raise found
        if kind == NO_MEMORY:
            raise OutOfMemory(TOO_LARGE)
        if kind == FAILED:
            raise WorkbenchError(f"the comparison failed: {found:.200}")
        return cast(Result, found)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Waits until nobody else computes."""
        while not self._alone.acquire(timeout=BEAT_SECONDS):
            check_work()
            report(0.0, "waiting for another comparison")
        try:
            yield
        finally:
            self._alone.release()

    def _answered(self, payload: bytes) -> tuple[str, Any]:
        """Returns the last message of a call."""
        process, connection = self._link = self._link or self._started()
        told = (0.0, COMPARING)
        try:
            connection.send_bytes(payload)
            while True:
                if not connection.poll(BEAT_SECONDS):
                    check_work()
                    report(*told)  # whoever listens may end the work
                    continue
                kind, found = connection.recv()
                if kind != REPORT:
                    return kind, found
                told = found
                report(*told)
        except (EOFError, ConnectionError):
            raise _end_of(process.wait()) from None

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            words = [str(theirs.fileno()), str(os.getpid()), str(int(self._gigabytes * (1 << 30)))]
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", MODULE, *words],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # results are on the socket
                    env=session_environment(ROOT, parallel=False),
                    start_new_session=True,
                )
            except OSError as error:
                raise WorkbenchError(f"the comparison cannot start: {error.strerror or error}") from error
            return process, Connection(ours.detach())


def _end_of(status: int) -> WorkbenchError:
    """Returns the error for a process that ended in the middle of a call."""
    if status in (-signal.SIGKILL, -signal.SIGABRT):  # how a process ends that gets no memory
        return OutOfMemory(TOO_LARGE)
    how = f"status {status}" if status >= 0 else f"signal {-status}"
    return WorkbenchError(f"the comparison ended with {how} before it had a result")
