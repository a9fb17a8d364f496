"""Sessions whose model runs on a server. They run in threads of this process, because they compute nothing here.

Queues join the client end (`workbench.isolation.concurrent`) and the worker end (`workbench.isolation.worker`). So
these sessions cancel, close and wait like sessions in processes.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import threading
from pathlib import Path
from typing import Any

from workbench.core.settings import SessionSpec
from workbench.families import FAMILIES
from workbench.isolation.channel import ConnectionLost
from workbench.isolation.worker import ParallelServer
from workbench.session.values import PROMPT


def in_threads(spec: SessionSpec) -> bool:
    """Returns whether a session runs in this process, as a language model on a server does.

    A speech model on a server first finds speech with a network that loads torch, so it needs a process.
    """
    return spec.server is not None and spec.family in FAMILIES and FAMILIES[spec.family].input == PROMPT


class ThreadChannel:
    """The channel to such a session, with the methods of `workbench.isolation.channel.Channel` that `concurrent` calls.

    A channel that has ended cannot open again.
    """

    pid = None
    tempdir: Path | None = None

    def __init__(self) -> None:
        self.opened = False
        self.alive = True
        self._inbox, self._outbox = _Queue(), _Queue()
        self._server: _ThreadServer | None = None
        self._ending = threading.RLock()

    def send(self, *message: Any, payload: bytes | None = None) -> None:
        """Sends one message, then a payload that is already pickled; raises `ConnectionLost` after the end."""
        with self._ending:
            if not self.alive:
                raise ConnectionLost
            if message[0] == "open":
                self._server = _ThreadServer(_Ends(self._inbox, self._outbox), message[1])
                threading.Thread(target=self._server.run, name=f"calls of {message[1].name}", daemon=True).start()
                return
            self._inbox.put(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
            if payload is not None:
                self._inbox.put(payload)

    def receive(self) -> tuple[str, int, Any]:
        """Waits for the next message; raises `ConnectionLost` after the last one."""
        try:
            message: tuple[str, int, Any] = pickle.loads(_next_message(self._outbox))  # noqa: S301 (from this process)
        except EOFError:
            raise ConnectionLost from None
        return message

    def end(self, patience: float = 0.0) -> None:
        """Ends all calls and closes the connections to the server. May be called again."""
        with self._ending:
            if not self.alive:
                return
            self.alive = False
        self._inbox.put(None)
        self._outbox.put(None)
        if self._server is not None:
            self._server.end()

    def how_it_ended(self) -> str:
        """Returns how the connection ended, as the middle of a sentence."""
        return "ended"


_Queue = queue.SimpleQueue[bytes | None]


class _Ends:
    """The worker's end of two queues, with the methods of a connection; None marks the end of a queue."""

    def __init__(self, inbox: queue.SimpleQueue[bytes | None], outbox: queue.SimpleQueue[bytes | None]):
        self._inbox, self._outbox = inbox, outbox

    def recv(self) -> Any:
        return pickle.loads(self.recv_bytes())  # noqa: S301 (from this process)

    def recv_bytes(self) -> bytes:
        return _next_message(self._inbox)

    def send_bytes(self, message: bytes) -> None:
        self._outbox.put(message)


def _next_message(waiting: queue.SimpleQueue[bytes | None]) -> bytes:
    message = waiting.get()
    if message is None:
        raise EOFError
    return message


class _ThreadServer(ParallelServer):
    """Runs each call in a separate thread. It never ends the process."""

    def __init__(self, connection: _Ends, spec: SessionSpec):
        super().__init__(connection, spec, None)
        self._ended = threading.Event()

    def run(self) -> None:
        """Opens the session; a listening thread starts the calls."""
        threading.Thread(target=self.listen, daemon=True).start()
        self.load()
        if self._ended.is_set():
            self.end()

    def end(self) -> None:
        """Stops all calls and closes the session; a session that is still opening closes afterwards."""
        self._ended.set()
        for running in list(self.running.values()):
            running.cancelled = True
            running.room.release()
        with contextlib.suppress(Exception):
            if self.session is not None:
                self.session.close()
