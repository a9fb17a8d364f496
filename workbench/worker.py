"""A session in a process of its own.

A crash or a kill of that process ends the running call with one clear error; the next call starts a new process.
Values travel as pickles over a private socket pair between two processes of the same program. This file knows no
model: `workbench.opening` loads it, in the child.

Messages to the child: ("call", number, method, arguments, options), ("cancel", number). From the child: ("opened",
load seconds), ("event", number, value), ("done", number, value), ("error", number, exception).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from workbench.errors import BadInput, Cancelled, SessionDied, WorkbenchError
from workbench.memory import resident_bytes
from workbench.opening import SessionSpec, open_here
from workbench.session import AudioSource, Event, Trace, Transcript, last_transcript

STOP_SECONDS = 3.0  # how long a child may take to end by itself


class ProcessSession:
    """A `Session` whose model lives in a child process.

    The process starts with the first call or with `start`, and ends with `unload`, after which the next call starts it
    again, or with `close`. One call runs at a time; others wait their turn.

    Args:
        spec: what to open.
        make_room: called before each start; may refuse by raising.
    """

    def __init__(self, spec: SessionSpec, make_room: Callable[[ProcessSession], None] | None = None):
        self.spec = spec
        self.model = spec.name
        self.runtime = spec.runtime
        self.load_seconds = 0.0
        self.last_used = time.monotonic()
        self._make_room = make_room
        self._turn = threading.Lock()  # held for the length of a call
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._sending = threading.Lock()
        self._number = 0
        self._closed = False

    # What the registry asks.

    @property
    def pid(self) -> int | None:
        """The child's process id, or None while there is none."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def busy(self) -> bool:
        """Whether a call is running."""
        return self._turn.locked()

    @property
    def memory_bytes(self) -> int:
        """What the child has resident now."""
        return resident_bytes(self.pid) if self.pid else 0

    def start(self) -> None:
        """Starts the process and loads the model, if that has not been done. Raises what loading raises."""
        with self._turn:
            self._ensure_started()

    def unload(self) -> bool:
        """Ends the process unless a call is running; returns whether it did. The next call loads the model again."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            self._stop()
        finally:
            self._turn.release()
        return True

    # The session.

    def stream(self, audio: AudioSource, **options: Any) -> Iterator[Event]:
        """As `Session.stream`; closing the iterator stops the work in the child."""
        yield from self._call("stream", (_plain(audio),), options)

    def transcribe(self, audio: AudioSource, **options: Any) -> Transcript:
        """As `Session.transcribe`."""
        return last_transcript(self.stream(audio, **options))

    def trace(self, audio: AudioSource, stages: str = "*", **options: Any) -> Trace:
        """As `Session.trace`."""
        return next(iter(self._call("trace", (_plain(audio), stages), options)))

    def cancel(self) -> None:
        """Stops the running call, from any thread; that call raises `Cancelled`. Nothing happens where none runs."""
        if self.busy:
            with contextlib.suppress(OSError):
                self._send(("cancel", self._number))

    def close(self) -> None:
        """Ends the process for good; a running call ends with `SessionDied`."""
        self._closed = True
        self._stop()

    def __enter__(self) -> ProcessSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # How calls travel.

    def _call(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Iterator[Any]:
        with self._turn:
            self._ensure_started()
            self._number += 1
            number = self._number
            finished = False
            try:
                self._send(("call", number, method, arguments, options))
                while True:
                    kind, of, value = self._receive(method)
                    if of != number:
                        continue  # the rest of a call that was given up
                    if kind == "error":
                        finished = True
                        raise value
                    if kind == "done":
                        finished = True
                        if value is not None:
                            yield value
                        return
                    yield value
            except (BrokenPipeError, ConnectionResetError) as error:
                finished = True
                raise self._died(method) from error
            finally:
                self.last_used = time.monotonic()
                if not finished:
                    with contextlib.suppress(OSError):
                        self._send(("cancel", number))

    def _receive(self, doing: str) -> tuple[str, int, Any]:
        connection = self._connection
        try:
            if connection is None:
                raise EOFError
            message: tuple[str, int, Any] = connection.recv()
            return message
        except (EOFError, OSError) as error:
            raise self._died(doing) from error

    def _send(self, message: tuple[Any, ...]) -> None:
        connection = self._connection
        if connection is None:
            raise BrokenPipeError
        with self._sending:
            connection.send(message)

    def _died(self, doing: str) -> SessionDied:
        process = self._process
        code = None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(STOP_SECONDS)
        self._stop()
        if self._closed:
            return SessionDied(f"{self.model} on {self.runtime} was closed during {doing}")
        cause = "without a status" if code is None else f"by signal {-code}" if code < 0 else f"with status {code}"
        return SessionDied(
            f"the process of {self.model} on {self.runtime} ended {cause} during {doing}; the next call starts a new one"
        )

    def _ensure_started(self) -> None:
        if self._closed:
            raise BadInput(f"the session of {self.model} is closed; open it again")
        if self.pid is not None:
            return
        self._stop()
        if self._make_room:
            self._make_room(self)
        begun = time.perf_counter()
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "workbench.worker", str(theirs.fileno())]
        root = str(Path(__file__).resolve().parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with theirs:
            # A session of its own: Ctrl-C in a shell stops the caller, which then closes the child.
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                env=environment,
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())
        try:
            self._send(("open", self.spec))
            kind, _, value = self._receive("loading")
        except BrokenPipeError as error:
            raise self._died("loading") from error
        except BaseException:
            self._stop()
            raise
        if kind == "error":
            self._stop()
            raise value
        self.load_seconds = time.perf_counter() - begun

    def _stop(self) -> None:
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is None:
            return
        try:
            process.wait(0 if process.poll() is not None else 0.2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _plain(audio: AudioSource) -> AudioSource:
    """Paths made absolute and strings, since the child may have another working folder."""
    return audio if isinstance(audio, tuple) else str(Path(audio).absolute())


# The child.


class _Child:
    """Runs calls in the main thread while another thread listens, so that a call can be cancelled."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.calls: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self.cancelled: set[int] = set()

    def run(self) -> None:
        """Loads the model, then serves calls until the parent hangs up."""
        _, spec = self.connection.recv()
        try:
            session = open_here(spec)
        except Exception as error:
            self.answer("error", 0, _portable(error, f"{spec.name} on {spec.runtime} could not be loaded"))
            return
        self.answer("opened", 0, session.load_seconds)
        threading.Thread(target=self.listen, daemon=True).start()
        while True:
            number, method, arguments, options = self.calls.get()
            try:
                self.serve(session, number, method, arguments, options)
            except Exception as error:
                self.answer("error", number, _portable(error, f"{method} with {spec.name} on {spec.runtime} failed"))

    def listen(self) -> None:
        """Takes messages until the parent hangs up, then ends the process at once."""
        while True:
            try:
                kind, number, *rest = self.connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            if kind == "cancel":
                self.cancelled.add(number)
            else:
                self.calls.put((number, *rest))

    def serve(
        self, session: Any, number: int, method: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Runs one call and sends what it gives."""
        result = getattr(session, method)(*arguments, **options)
        if not isinstance(result, Iterator):
            self.answer("done", number, result)
            return
        for event in result:
            if number in self.cancelled:
                raise Cancelled(f"{method} was stopped")
            self.answer("event", number, event)
        self.answer("done", number, None)

    def answer(self, kind: str, number: int, value: Any) -> None:
        """Sends one message; the parent may be gone, then so are we."""
        try:
            self.connection.send((kind, number, value))
        except OSError:
            os._exit(0)


def _portable(error: Exception, doing: str) -> WorkbenchError:
    """The error as one that can be pickled and shown: ours as it is, any other with its kind, the traceback on stderr."""
    if isinstance(error, WorkbenchError):
        return error
    traceback.print_exc()
    if isinstance(error, MemoryError):
        return WorkbenchError(f"{doing}: not enough memory")
    text = str(error).splitlines()[0] if str(error) else "no message"
    return WorkbenchError(f"{doing}: {type(error).__name__}: {text}")


def main() -> None:
    """Entry of the child process; the one argument is the number of the inherited socket."""
    connection = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        _Child(connection).run()


if __name__ == "__main__":
    main()
