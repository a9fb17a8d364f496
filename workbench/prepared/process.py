"""A prepared process: it has imported what sessions of one kind need, and forks a process for each of them.

It has one thread, no model and no memory of the graphics card, so that a fork is safe. If that is not true after the
imports, it says why and ends. `workbench.prepared.pool` is the other end. A socket pair connects them:

- to here: once the pickled `Kind`, then for every session the pickled `Order`, and with it three files: the session's
  socket, where it writes its messages to a person, and the pipe for its status
- from here: once `READY`, or the reason why it cannot serve, as text
- through the pipe of the status: the process id, then the exit status, as 32-bit integers; a negative status is the
  number of a signal
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import socket
import struct
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, reload

from workbench.core.errors import named_message_of
from workbench.prepared.kinds import READ_BY_HUB, Kind, unused_packages
from workbench.system.forks import end_with, why_not_forkable
from workbench.system.imports import hidden_packages

MAX_MESSAGE_BYTES = 1 << 20
STATUS = struct.Struct("<i")
READY = "ready"  # what it says after its imports; anything else is the reason why it cannot serve
FILES = 3  # that come with an order
HUB = "huggingface_hub.constants"
WORKER = "workbench.isolation.worker"


@dataclass(frozen=True)
class Order:
    """A session's process to be forked."""

    environment: Mapping[str, str]
    folder: str  # to work in
    words: tuple[str, ...]  # its arguments, which a list of processes shows, too
    module: str = WORKER  # whose function `serve` is called with the socket


class Forks:
    """Forks a process for each order, and reports how each ended."""

    def __init__(self, control: socket.socket):
        self._control = control
        self._children: dict[int, tuple[int, int]] = {}  # by the file of the process: its id and the pipe of its status

    def run(self) -> tuple[Order, int] | None:
        """Takes orders until the other end hangs up and every forked process has ended; then returns None.

        In each forked process it returns the order and the session's socket.
        """
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        listening = True
        while listening or self._children:
            for number, _ in poll.poll():
                if number != self._control.fileno():
                    poll.unregister(number)
                    self._report_end(number)
                    continue
                data, files = self._receive()
                if not data:
                    listening = False
                    poll.unregister(self._control)
                    continue
                sys.stdout.flush()
                sys.stderr.flush()
                parent, pid = os.getpid(), os.fork()
                if pid == 0:
                    end_with(parent)
                    return self._begin(data, *files)
                poll.register(self._note(pid, *files), select.POLLIN)
        return None

    def _receive(self) -> tuple[bytes, list[int]]:
        """Returns the next order with its files; nothing where the other end has hung up."""
        try:
            data, files, _, _ = socket.recv_fds(self._control, MAX_MESSAGE_BYTES, FILES, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return b"", []
        return data, files

    def _note(self, pid: int, session: int, errors: int, status: int) -> int:
        """Tells of a forked process; returns the file that can be read when it has ended."""
        os.close(session)
        os.close(errors)
        child = os.pidfd_open(pid)
        self._children[child] = pid, status
        _write(status, pid)
        return child

    def _begin(self, data: bytes, session: int, errors: int, status: int) -> tuple[Order, int]:
        """Closes in a forked process what is the prepared process's alone."""
        self._control.close()
        for child, (_, pipe) in self._children.items():
            os.close(child)
            os.close(pipe)
        os.close(status)
        for standard in (1, 2):  # results are on the socket, so all that is printed is for people
            os.dup2(errors, standard)
        os.close(errors)
        order: Order = pickle.loads(data)  # noqa: S301 (from the process that started this one)
        return order, session

    def _report_end(self, child: int) -> None:
        pid, status = self._children.pop(child)
        _, wait_status = os.waitpid(pid, 0)
        os.close(child)
        _write(status, os.waitstatus_to_exitcode(wait_status))
        os.close(status)


def _write(pipe: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the reader is gone
        os.write(pipe, STATUS.pack(number))


def import_all(kind: Kind) -> str:
    """Imports what sessions of a kind need; returns why this process cannot be forked then, or an empty text."""
    try:
        import_module(WORKER)
        with hidden_packages(*unused_packages(kind.runtime)):
            preload = import_module(f"workbench.runtimes.{kind.runtime}.preload").preload
            preload(language=kind.language, threads=kind.threads, eager=kind.eager)
    except Exception as error:
        return named_message_of(error)
    return why_not_forkable() or ""


def become(order: Order, before: Mapping[str, str]) -> None:
    """Makes a forked process what it would be if it had been started for the order.

    Args:
        before: the environment that the prepared process was started with.
    """
    os.setsid()  # a group of its own, so that all that it starts can be ended with it
    with contextlib.suppress(OSError):  # removed since; who needs it says so
        os.chdir(order.folder)
    changed = {name for name in before.keys() | order.environment if before.get(name) != order.environment.get(name)}
    for name in changed:
        if name in order.environment:
            os.environ[name] = order.environment[name]
        else:
            os.environ.pop(name, None)
    tempfile.tempdir = None  # it follows $TMPDIR
    if HUB in sys.modules and changed & READ_BY_HUB:
        reload(sys.modules[HUB])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # else all forked processes would draw the same numbers
    sys.argv = [order.module, *order.words]
    with contextlib.suppress(ImportError):  # a part of what vLLM needs
        import_module("setproctitle").setproctitle(" ".join(sys.argv))


def main() -> None:
    """Entry of the prepared process; the first argument is the number of the inherited socket."""
    before = dict(os.environ)
    control = socket.socket(fileno=int(sys.argv[1]))
    data = control.recv(MAX_MESSAGE_BYTES)
    if not data:
        return
    reason = import_all(pickle.loads(data))  # noqa: S301 (from the process that started this one)
    gc.collect()
    gc.freeze()  # the collector then leaves alone the memory that forked processes share
    try:
        control.send((reason or READY).encode())
    except OSError:
        return
    if reason:
        return
    found = Forks(control).run()
    if found is not None:
        order, session = found
        become(order, before)
        import_module(order.module).serve(session)


if __name__ == "__main__":
    main()
