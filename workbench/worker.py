"""A session in a process of its own.

A crash or a kill of that process ends the running call with one clear error; the next call starts a new process.
`workbench.child` is the other end and lists the messages. This file knows no model.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import ContextVar
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from workbench.errors import BadInput, Cancelled, SessionDied, WorkbenchError
from workbench.families import FAMILIES
from workbench.memory import resident_bytes
from workbench.opening import SessionSpec
from workbench.session import AudioSource, Event, Generation, Piece, Prompt, Session, Trace, recordings

CHILD = ("-P", "-m", "workbench.child")  # -P: a torch.py in the user's folder is not torch
EXIT_SECONDS = 3.0  # how long a child that has hung up may take to be gone
FIRST_CHECK_SECONDS, LAST_CHECK_SECONDS = 0.2, 5.0  # how soon and how often a waiting call looks what it waits for
DOING = {
    "stream": "transcribing",
    "stream_batch": "transcribing",
    "generate_stream": "generating",
    "trace": "tracing",
}

_flow: ContextVar[object] = ContextVar("flow")


class ProcessSession(Session):
    """A session whose model lives in a child process.

    The process starts with the first call or with `start`, and ends with `unload`, after which the next call starts it
    again, or with `close`. One call runs at a time; others wait their turn. Every method may be called from any thread.

    Args:
        spec: what to open.
        admitted: entered around each start of the process; may refuse by raising.
    """

    def __init__(
        self,
        spec: SessionSpec,
        admitted: Callable[[ProcessSession], contextlib.AbstractContextManager[None]] | None = None,
    ):
        self.spec = spec
        self.model = spec.name
        self.runtime = spec.runtime
        self.load_seconds = 0.0  # of the process that runs now, its start included
        self.last_used = time.monotonic()
        self._admitted = admitted
        self._turn = threading.Lock()  # held for the length of a call, also while a stream waits to be read on
        self._holder: tuple[object, int] | None = None  # who moved the call that has the turn
        self._resting = False  # whether that call is a stream that waits to be read on
        self._state = threading.Lock()  # guards what follows; held for moments only
        self._link: _Link | None = None
        self._number = 0  # of the latest call
        self._cancelled = 0  # calls up to this number were cancelled
        self._closed = False

    # What the registry asks.

    @property
    def pid(self) -> int | None:
        """The child's process id, or None while there is none."""
        link = self._link
        return link.process.pid if link is not None and link.alive else None

    @property
    def busy(self) -> bool:
        """Whether a call is running or the model is being loaded."""
        return self._turn.locked()

    @property
    def memory_bytes(self) -> int:
        """What the child has resident now."""
        pid = self.pid
        return resident_bytes(pid) if pid else 0

    def start(self) -> None:
        """Starts the process and loads the model, if that has not been done. Raises what loading raises."""
        link = self._link
        if link is not None and link.opened and link.alive and not self._closed:
            self.last_used = time.monotonic()
            return  # no need to wait for a call that runs
        with self._taking_turn() as number:
            self._started(number)

    def unload(self) -> bool:
        """Ends the process unless a call is running; returns whether it did. The next call loads the model again."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self._link is not None:
                self._forget(self._link)
        finally:
            self._turn.release()
        return True

    # The session.

    def stream(self, audio: AudioSource, **options: Any) -> Generator[Event, None, None]:
        """As `Session.stream`; closing the iterator stops the work in the child."""
        return self._call("stream", (_plain(audio),), options)

    def stream_batch(
        self, audios: Sequence[AudioSource], **options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """As `Session.stream_batch`; closing the iterator stops the work in the child."""
        return self._call("stream_batch", ([_plain(audio) for audio in recordings(audios)],), options)

    def generate_stream(self, prompt: Prompt, **options: Any) -> Generator[Piece | Generation, None, None]:
        """As `Session.generate_stream`; closing the iterator stops the work in the child."""
        return self._call("generate_stream", (prompt,), options)

    def trace(self, source: Any, stages: str = "*", **options: Any) -> Trace:
        """As `Session.trace`."""
        family = FAMILIES.get(self.spec.family)
        given = source if family and family.reads_text else _plain(source)
        [trace] = self._call("trace", (given, stages), options)
        return trace

    def cancel(self) -> None:
        """Stops the running call, from any thread; that call raises `Cancelled`. Nothing happens where none runs."""
        with self._state:
            if not self._turn.locked():
                return
            number = self._cancelled = self._number
            link = self._link
        if link is None:
            return  # not started yet, and will not be
        if link.opened:
            with contextlib.suppress(_Lost):
                link.send("cancel", number)
        else:
            link.end()

    def close(self) -> None:
        """Ends the process for good; a running call ends with `SessionDied`."""
        with self._state:
            self._closed = True
            link, self._link = self._link, None
        if link is not None:
            link.end()

    def __enter__(self) -> ProcessSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # How calls travel.

    @contextlib.contextmanager
    def _taking_turn(self) -> Iterator[int]:
        """Waits for the turn and gives the number of the call."""
        here, patience = _here(), 0.0
        while not self._turn.acquire(timeout=patience):
            self._check_open()
            if self._resting and (patience or self._holder == here):
                gc.collect()  # a stream that was dropped inside a cycle of references keeps the turn until then
                if self._holder == here:
                    raise BadInput(f"a stream of {self.model} is still open here; read it to its end or close it first")
            patience = min(2 * patience + FIRST_CHECK_SECONDS, LAST_CHECK_SECONDS)
        try:
            with self._state:
                self._holder = here
                self._number += 1
                number = self._number
            yield number
        finally:
            self.last_used = time.monotonic()
            self._holder = None
            self._turn.release()

    def _call(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Generator[Any, None, None]:
        try:
            payload = pickle.dumps((method, arguments, options), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise BadInput(f"the recording or an option cannot be sent to the session's process: {error}") from error
        return self._replies(method, payload)

    def _replies(self, method: str, payload: bytes) -> Generator[Any, None, None]:
        with self._taking_turn() as number:
            while True:
                link, fresh = self._started(number)
                taken = finished = False
                try:
                    link.send("call", number, payload=payload)
                    while not finished:
                        kind, of, value = link.receive()
                        if of != number:
                            continue  # the rest of a call that was given up
                        taken = True
                        finished = kind in ("done", "error")
                        if kind == "error":
                            raise _revived(*value)
                        if kind == "event" or (kind == "done" and value is not None):
                            self._resting = True
                            try:
                                yield value
                            finally:
                                self._resting = False
                            self._holder = _here()  # a stream may be handed from thread to thread
                    return
                except _Lost:
                    finished = True
                    error = self._died(link, DOING.get(method, method), number)
                    # A process that ended before it took the call was killed between calls: nothing is lost yet.
                    if taken or fresh or isinstance(error, Cancelled):
                        raise error from None
                finally:
                    if not finished:
                        with contextlib.suppress(_Lost):
                            link.send("cancel", number)

    def _started(self, number: int) -> tuple[_Link, bool]:
        """The running child, and whether it was started only now. Only whoever has the turn may ask."""
        link = self._link
        if link is not None and link.alive:
            return link, False
        with self._admitted(self) if self._admitted else contextlib.nullcontext():
            begun = time.perf_counter()
            with self._state:
                self._check_open()
                if number <= self._cancelled:
                    raise Cancelled(f"loading {self.model} was stopped")
                link = self._link = _Link(self.spec)
            try:
                link.send("open", self.spec)
                kind, _, value = link.receive()
            except _Lost:
                raise self._died(link, "loading", number) from None
            except BaseException:
                self._forget(link)
                raise
            if kind == "error":
                self._forget(link)
                raise _revived(*value)
            link.opened = True
            self.load_seconds = time.perf_counter() - begun
        return link, True

    def _check_open(self) -> None:
        if self._closed:
            raise BadInput(f"the session of {self.model} is closed; open it again")

    def _forget(self, link: _Link) -> None:
        """Ends one life of the child."""
        with self._state:
            if self._link is link:
                self._link = None
        link.end()

    def _died(self, link: _Link, doing: str, number: int) -> WorkbenchError:
        """What to raise when the child has hung up."""
        how = link.how_it_ended()
        self._forget(link)
        if self._closed:
            return SessionDied(f"the session of {self.model} on {self.runtime} was closed while {doing}")
        if number <= self._cancelled:
            return Cancelled(f"{doing} with {self.model} was stopped")
        return SessionDied(
            f"the process of {self.model} on {self.runtime} {how} while {doing}; the next call starts a new one"
        )


class _Lost(Exception):
    """The child has hung up."""


class _Link:
    """One life of the child: its process, and our end of the socket pair.

    Once ended it stays so. The socket is closed when nobody refers to the link any more: a thread may be reading it.
    """

    def __init__(self, spec: SessionSpec):
        root = str(Path(__file__).resolve().parent.parent)
        paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.opened = False
        self._sending = threading.RLock()  # a stream may be collected, and so cancelled, at any time
        try:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                # The names are for whoever reads a list of processes.
                command = [sys.executable, *CHILD, str(theirs.fileno()), spec.name, spec.runtime]
                self.process = subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # results are on ours
                    env={**os.environ, "PYTHONPATH": paths},
                    start_new_session=True,  # Ctrl-C in a shell stops the caller, which then ends the child
                )
                self._connection = Connection(ours.detach())
        except OSError as error:
            raise WorkbenchError(f"the process of {spec.name} on {spec.runtime} cannot start: {error}") from error

    @property
    def alive(self) -> bool:
        """Whether the process runs; takes note of its end, so that nothing of it stays in the system's table."""
        return self.process.poll() is None

    def send(self, *message: Any, payload: bytes | None = None) -> None:
        """Sends one message, and after it what is pickled already; raises `_Lost` where nobody reads it."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        with self._sending, self._whole_message():
            self._connection.send_bytes(data)
            if payload is not None:
                self._connection.send_bytes(payload)

    def receive(self) -> tuple[str, int, Any]:
        """Waits for the next message; raises `_Lost` where there will be none."""
        with contextlib.suppress(OSError):
            self._connection.poll(None)  # apart from reading, so that Ctrl-C during the wait does no harm
        with self._whole_message():
            message: tuple[str, int, Any] = self._connection.recv()
        return message

    @contextlib.contextmanager
    def _whole_message(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            raise _Lost from None
        except BaseException:
            self.end()  # interrupted inside a message: nothing after it would make sense
            raise

    def end(self) -> None:
        """Ends the process, which has nothing to save, and waits until its memory is free. May be called again."""
        self.process.kill()
        self.process.wait()

    def how_it_ended(self) -> str:
        """How the process ended, as the middle of a sentence."""
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


def _plain(audio: AudioSource) -> AudioSource:
    """Paths made absolute and strings, since the child may have another working folder."""
    return str(Path(audio).absolute()) if isinstance(audio, (str, Path)) else audio


def _revived(kind: type[WorkbenchError], sentence: str, notes: str) -> WorkbenchError:
    error = kind(sentence)
    if notes:
        error.add_note(f"In the session's process:\n{notes}")
    return error


def _here() -> tuple[object, int]:
    """Names this line of execution: the thread, and the context, as pools run steps of many streams in one thread."""
    flow = _flow.get(None)
    if flow is None:
        flow = object()
        _flow.set(flow)
    return flow, threading.get_ident()
