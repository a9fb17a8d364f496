"""A session on a server, in threads of this process: it computes nothing here, so it needs no process of its own.

It has the parent's end of a session in a process (`workbench.isolation.concurrent`) and the worker's end
(`workbench.isolation.worker`), and queues between them: cancelling, closing and waiting are the same.
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


def in_threads(spec: SessionSpec) -> bool:
    """Whether a session runs in this process: a language model on a server.

    A speech model on a server looks for speech before it asks, with a network that loads torch.
    """
    return spec.server is not None and spec.family in FAMILIES and FAMILIES[spec.family].reads_text


class ThreadLink:
    """One life of such a session, as a `workbench.isolation.channel.Link`. Once ended it stays so."""

    pid = None
    scratch: Path | None = None

    def __init__(self) -> None:
        self.opened = False
        self.alive = True
        self._inbox, self._outbox = _Queue(), _Queue()
        self._server: _ThreadServer | None = None
        self._ending = threading.RLock()

    def send(self, *message: Any, payload: bytes | None = None) -> None:
        """Sends one message, and after it what is pickled already; raises `ConnectionLost` after the end."""
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
        """Waits for the next message; raises `ConnectionLost` where there will be none."""
        try:
            message: tuple[str, int, Any] = pickle.loads(_taken(self._outbox))  # noqa: S301 (from this process)
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
        """How it ended, as the middle of a sentence."""
        return "ended"


_Queue = queue.SimpleQueue[bytes | None]


class _Ends:
    """The worker's end of two queues, as a connection; None in a queue is its end."""

    def __init__(self, inbox: queue.SimpleQueue[bytes | None], outbox: queue.SimpleQueue[bytes | None]):
        self._inbox, self._outbox = inbox, outbox

    def recv(self) -> Any:
        return pickle.loads(self.recv_bytes())  # noqa: S301 (from this process)

    def recv_bytes(self) -> bytes:
        return _taken(self._inbox)

    def send_bytes(self, message: bytes) -> None:
        self._outbox.put(message)


def _taken(waiting: queue.SimpleQueue[bytes | None]) -> bytes:
    message = waiting.get()
    if message is None:
        raise EOFError
    return message


class _ThreadServer(ParallelServer):
    """Runs each call in a thread of its own, and ends no process."""

    def __init__(self, connection: _Ends, spec: SessionSpec):
        super().__init__(connection, spec, None)
        self._ended = threading.Event()

    def run(self) -> None:
        """Opens the session; the thread that listens starts the calls."""
        threading.Thread(target=self.listen, daemon=True).start()
        self.load()
        if self._ended.is_set():
            self.end()

    def end(self) -> None:
        """Stops all calls and closes the session, also one that is being opened when that is done."""
        self._ended.set()
        for running in list(self.running.values()):
            running.cancelled = True
            running.room.release()
        with contextlib.suppress(Exception):
            if self.session is not None:
                self.session.close()
