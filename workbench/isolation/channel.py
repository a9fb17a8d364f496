"""The channel to a session's process. It starts the process, carries messages, and ends the process and its children.

`workbench.isolation.worker` is the other end and lists the messages. This file knows no model and no call.
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
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.core.settings import SessionSpec
from workbench.core.visitors import check_work, current_work
from workbench.isolation.kinds import kind_of
from workbench.prepared.kinds import COMPILED, session_environment
from workbench.prepared.pool import PREPARED, ForkedProcess
from workbench.system.process_groups import end_group, is_stopped
from workbench.system.tempdirs import make_tempdir, remove_tempdir

EXIT_SECONDS = 3.0  # how long a child that has hung up may take to be gone
CHECK_SECONDS = 1.0  # how often a wait for a message checks whether the process still runs
WORK_SECONDS = 0.1  # how often a wait for a message checks whether the work was stopped
STOPPED_SECONDS = 10.0  # how long a process may be stopped (SIGSTOP, a debugger) in the middle of a call
MODULE = "workbench.isolation.worker"
WORKER = ("-P", "-m", MODULE)  # -P: a torch.py in the user's folder is not torch


class ConnectionLost(Exception):
    """The error for a connection that the child has closed."""


def wait_until_prepared(spec: SessionSpec, command: Sequence[str]) -> None:
    """Returns when a prepared process is ready for the session, or when it is clear that none will be.

    A listener (`workbench.core.progress`) receives the wait, and may raise to end it.
    """
    if _module(command):
        PREPARED.wait_for(kind_of(spec), spec.name)


def _fork(
    spec: SessionSpec, command: Sequence[str], environment: Mapping[str, str], child_socket: socket.socket
) -> ForkedProcess | None:
    """Returns the session's process, forked from a prepared one; None if there is none."""
    module = _module(command)
    if module is None:
        return None
    return PREPARED.fork(kind_of(spec), (spec.name, spec.runtime), environment, child_socket.fileno(), module)


def _module(command: Sequence[str]) -> str | None:
    """Returns the module that a command runs, if it is one of this project's, which a prepared process can run too."""
    if tuple(command) == WORKER:
        return MODULE
    *flags, module = command
    return module if tuple(flags) == WORKER[:-1] and module.startswith(f"{__name__.partition('.')[0]}.") else None


def _start(
    spec: SessionSpec, command: Sequence[str], environment: Mapping[str, str], child_socket: socket.socket
) -> subprocess.Popen[bytes]:
    """Starts the session's process and returns it."""
    return subprocess.Popen(
        # The names show in a list of processes.
        [sys.executable, *command, str(child_socket.fileno()), spec.name, spec.runtime],
        pass_fds=[child_socket.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=2,  # results are on the socket
        env=dict(environment),
        # A group of its own, so that all that it starts can be ended with it; and Ctrl-C in a shell stops the caller,
        # which then ends the child.
        start_new_session=True,
    )


class Channel:
    """One process of a session, and our end of the socket pair.

    A channel that has ended cannot start again. The socket is closed when nobody refers to the channel any more: until
    then a thread may still read from it.

    Args:
        command: the arguments of Python that start the child.
        parallel: the child takes several calls at once. It and what it starts then have their own folder for temporary
            files, which is removed with it.
    """

    def __init__(self, spec: SessionSpec, command: Sequence[str], parallel: bool = False):
        environment = session_environment(parallel)
        self.opened = False
        self.stopped = False  # whether it was ended because it did not run any more
        self.tempdir: Path | None = None
        self._ended = False
        self._ending = threading.RLock()
        self.process: subprocess.Popen[bytes] | ForkedProcess
        self._sending = threading.RLock()  # a stream may be collected, and so cancelled, at any time
        try:
            if parallel:
                self.tempdir = make_tempdir()
                environment |= dict.fromkeys(("TMPDIR", "VLLM_RPC_BASE_PATH"), str(self.tempdir))
                environment[COMPILED] = os.environ.get(COMPILED, str(self.tempdir))
            parent_socket, child_socket = socket.socketpair()
            with parent_socket, child_socket:
                self.process = _fork(spec, command, environment, child_socket) or _start(
                    spec, command, environment, child_socket
                )
                self._connection = Connection(parent_socket.detach())
        except OSError as error:
            self._remove_tempdir()
            raise WorkbenchError(f"the process of {spec.name} on {spec.runtime} cannot start: {error}") from error

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs. If it has ended, this also ends what it started, and removes its files."""
        if self.process.poll() is None:
            return True
        self.end()
        return False

    def send(self, *message: Any, payload: bytes | None = None) -> None:
        """Sends one message, then a payload that is already pickled; raises `ConnectionLost` if the child is gone."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)

        def send_both() -> None:
            self._connection.send_bytes(data)
            if payload is not None:
                self._connection.send_bytes(payload)

        with self._sending:
            self._whole(send_both)

    def receive(self) -> tuple[str, int, Any]:
        """Waits for the next message and returns it; raises what `wait_for_message` raises."""
        self.wait_for_message()
        message: tuple[str, int, Any] = self._whole(self._connection.recv)
        return message

    def wait_for_message(self, gives_up: Callable[[], bool] | None = None) -> bool:
        """Waits until a message is there and returns True; returns False if `gives_up` returns True before.

        Raises `ConnectionLost` if no message will come. Ends a process that was stopped (SIGSTOP) for
        `STOPPED_SECONDS`, because it would never answer. Raises the error of this context's work when the work has to
        end (`workbench.core.visitors`).
        """
        seconds = CHECK_SECONDS if current_work() is None else WORK_SECONDS
        checked = since = time.monotonic()
        while not self.poll(seconds):
            check_work()
            if gives_up is not None and gives_up():
                return False
            # Processes that the child has forked share our socket, and keep it open when the child itself is gone.
            if self.process.poll() is not None and not self.poll(0.0):
                raise ConnectionLost
            now = time.monotonic()
            if now - checked >= CHECK_SECONDS:
                checked = now
                since = since if is_stopped(self.process.pid) else now
                if now - since >= STOPPED_SECONDS:
                    self.stopped = True
                    self.end()
                    raise ConnectionLost
        return True

    def poll(self, seconds: float) -> bool:
        """Returns whether a message or the end of the connection comes within that time."""
        try:
            return self._connection.poll(seconds)  # apart from reading, so that Ctrl-C meanwhile does no harm
        except OSError:
            return True

    def _whole(self, transfer: Callable[[], Any]) -> Any:
        """Returns what `transfer` returns, which sends or receives a whole message.

        Raises `ConnectionLost` if the child is gone. Ends the process if the transfer is interrupted.

        A context manager of contextlib would not do: from Python 3.13 on, it keeps the frame of an error, and with it
        the socket, until the garbage collector runs.
        """
        try:
            return transfer()
        except (EOFError, OSError):
            raise ConnectionLost from None
        except BaseException:
            self.end()  # nothing after a part of a message would make sense
            raise

    def end(self, patience: float = 0.0) -> None:
        """Ends the process and all that it has started, and waits until their memory is free. May be called again.

        Args:
            patience: seconds that the process may take to end by itself after it was asked to.
        """
        with self._ending:
            if self._ended:
                return
            if patience:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(patience)
            self.process.kill()
            self.process.wait()
            self._remove_tempdir(end_group(self.process.pid) | {self.process.pid})
            self._ended = True

    def how_it_ended(self) -> str:
        """Returns how the process ended, as the middle of a sentence."""
        if self.stopped:
            return f"did not run for {STOPPED_SECONDS:.0f} s and was ended"
        try:
            status = self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "hung up"
        if status >= 0:
            return f"ended with status {status}"
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"was ended by {name}" + (", as happens when memory runs out," if status == -signal.SIGKILL else "")

    def _remove_tempdir(self, killed: Collection[int] = ()) -> None:
        """Removes the folder for temporary files, if there is one."""
        if self.tempdir:
            remove_tempdir(self.tempdir, killed)
