"""The child's end of a session in a separate process: loads one model and serves calls until the parent disconnects.

The other end is `serial` for one call at a time, and `concurrent` for several. They exchange pickles over a private
socket pair between two processes of the same program. This file knows no model; `loader` loads it.

Messages to the child:

- ("open", spec, whether several calls run at once, folder of temporary files or None)
- ("call", number), and behind it the pickle of (method, arguments, options)
- ("cancel", number)
- where one call runs at a time: ("pause", number), after which a stream pauses at the end of a segment, and
  ("resume", number)
- where several run: ("more", number, count) when the caller has used so many events of a call, and ("close", 0)

Messages from the child:

- any count of ("progress", 0, (fraction, activity)), then ("opened", 0, mapping with `log`: a path or None)
- for each call: ("taken", number, None), any count of ("event", number, value) and ("progress", number, ...), and last
  ("done", number, value) or ("error", number, (class, sentence, notes))
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import sys
import threading
import traceback
from collections import deque
from collections.abc import Generator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, Protocol

from workbench.core.errors import (
    BadInput,
    Cancelled,
    DiskFull,
    NotFinite,
    OutOfMemory,
    SessionDied,
    Unavailable,
    WorkbenchError,
    named_message_of,
)
from workbench.core.progress import listening
from workbench.core.settings import SessionSpec
from workbench.families import FAMILIES
from workbench.isolation.loader import open_alone
from workbench.prepared.kinds import unused_packages
from workbench.session.calls import CALLS, call_of
from workbench.session.protocols import Session
from workbench.session.values import Progress
from workbench.system.forks import allow_forks
from workbench.system.imports import hidden_packages
from workbench.system.memory import give_back_memory, is_lack_of_memory, take_buffers, use_one_heap
from workbench.system.process_groups import end_others
from workbench.system.tempdirs import remove_tempdir

IDLE_SECONDS = 3.0  # after this time without a call, the process gives freed memory back to the system
CANCEL_SECONDS = 5.0  # a cancelled call that still runs after this time is ended with the process
MAX_CANCELLED = 1024  # how many cancelled calls are remembered
EVENTS_AHEAD = (
    16  # events of a call that are sent before its caller has used the first, where several calls run at once
)
ERRORS = (NotFinite, BadInput, DiskFull, Unavailable, SessionDied, Cancelled, OutOfMemory, WorkbenchError)


class ConnectionLike(Protocol):
    """Carries messages: a `multiprocessing.connection.Connection`, or an object with the same methods."""

    def recv(self) -> Any:
        """Waits for a message; raises `EOFError` after the last message."""
        ...

    def recv_bytes(self) -> bytes:
        """Waits for a message of bytes; raises `EOFError` after the last message."""
        ...

    def send_bytes(self, message: bytes) -> None:
        """Sends a message that is pickled already."""
        ...


class _Server:
    """Runs calls in the main thread while another thread listens, so that a call can be cancelled."""

    def __init__(self, connection: ConnectionLike, spec: SessionSpec, tempdir: Path | None):
        self.connection = connection
        self.spec = spec
        self.tempdir = tempdir
        self.session: Session | None = None
        self.calls: queue.SimpleQueue[tuple[int, bytes | Generator[Any, None, None]]] = queue.SimpleQueue()
        self.cancelled: deque[int] = deque(maxlen=MAX_CANCELLED)  # the numbers of calls that are to stop
        self.pause_requests: set[int] = set()  # the numbers of streams that are to pause
        self.paused: dict[int, Generator[Any, None, None]] = {}
        self.pause_lock = threading.Lock()  # guards these two
        self.working = 0  # the number of the call at work, 0 between calls
        self.sending = threading.Lock()

    def run(self) -> None:
        """Loads the model, then serves calls until the parent hangs up."""
        threading.Thread(target=self.listen, daemon=True).start()
        if not self.load():
            return
        while True:
            self.serve_call(*self.next_call())

    def serve_call(self, number: int, work: bytes | Generator[Any, None, None]) -> None:
        """Runs a call, or goes on with a stream, and sends what it gives or raises."""
        self.working = number
        try:
            if isinstance(work, bytes):
                self.run_call(number, work)
            else:
                self.run_stream(number, work)
        except Exception as error:
            self.send("error", number, _portable(error, f"{self.spec.name} on {self.spec.runtime} failed"))
        self.working = 0

    def next_call(self) -> tuple[int, bytes | Generator[Any, None, None]]:
        """Waits for a call; gives freed memory back to the system if none comes for a while."""
        try:
            return self.calls.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            give_back_memory()
        return self.calls.get()

    def load(self) -> bool:
        """Loads the model, and sends that it is loaded, or why not. Returns whether it is loaded."""
        spec = self.spec
        try:
            with hidden_packages(*_unneeded_packages(spec)), self.reporting(0):
                session = open_alone(spec)
                take_buffers()
        except Exception as error:
            self.send("error", 0, _portable(error, f"{spec.name} on {spec.runtime} could not be loaded"))
            return False
        self.session = session
        self.send("opened", 0, {"log": str(session.log) if session.log else None})
        return True

    def listen(self) -> None:
        """Receives messages until the parent hangs up, then ends at once."""
        while True:
            try:
                self.receive()
            except (EOFError, OSError):
                return self.end()

    def receive(self) -> None:
        """Waits for a message and handles it. Returns after each one, so that nothing keeps a call's recording."""
        kind, number, *values = self.connection.recv()
        if kind == "call":
            self.accept_call(number, self.connection.recv_bytes())
        else:
            self.handle_message(kind, number, *values)

    def accept_call(self, number: int, payload: bytes) -> None:
        """Puts a call in the queue."""
        self.calls.put((number, payload))

    def handle_message(self, kind: str, number: int, *values: Any) -> None:
        """Does what a message asks for, if the message is not a call."""
        if kind == "pause":
            with self.pause_lock:
                self.pause_requests.add(number)
            return
        if kind == "cancel":
            self.cancel(number)
        with self.pause_lock:
            self.pause_requests.discard(number)
            events = self.paused.pop(number, None)
        if events is not None:
            self.calls.put((number, events))

    def cancel(self, number: int) -> None:
        """Cancels a call, and ends the process if it runs on nevertheless."""
        self.cancelled.append(number)
        impatience = threading.Timer(CANCEL_SECONDS, self.exit_if_running, (number,))
        impatience.daemon = True
        impatience.start()

    def exit_if_running(self, number: int) -> None:
        """Ends the process if the call is still running: one long step would keep the next call waiting."""
        if 0 < self.working == number:
            os._exit(1)

    def run_call(self, number: int, payload: bytes) -> None:
        """Runs one call and sends what it gives."""
        self.send("taken", number, None)
        try:
            name, arguments, options = pickle.loads(payload)  # noqa: S301 (from the process that started this one)
        except Exception as error:
            raise BadInput(f"an argument cannot be understood in the session's process: {error}") from error
        self.stop_if_cancelled(number)
        with self.reporting(number):
            result = call_of(self.session, name)(*arguments, **options)
        if CALLS[name].streams:
            self.run_stream(number, result)
        else:
            self.send("done", number, result)

    def run_stream(self, number: int, events: Generator[Any, None, None]) -> None:
        """Sends the events of a stream until its end or its next pause."""
        with self.reporting(number):
            ended = self.send_events(number, events)
        if ended:
            self.send("done", number, None)

    def send_events(self, number: int, events: Generator[Any, None, None]) -> bool:
        """Sends the events of a stream when its caller has room for them; returns whether the stream has ended."""
        is_paused = False
        try:
            self.stop_if_cancelled(number)
            for event in events:
                self.wait_for_room(number)
                self.stop_if_cancelled(number)
                self.send("event", number, event)
                is_paused = self.pause_if_requested(number, event, events)
                if is_paused:
                    return False
            return True
        finally:
            if not is_paused:
                events.close()
                with self.pause_lock:
                    self.pause_requests.discard(number)

    def pause_if_requested(self, number: int, event: Any, events: Generator[Any, None, None]) -> bool:
        """Pauses a stream if that was requested; returns whether it is paused now.

        That happens only between two segments of a recording, where a `Progress` comes: the model computes nothing
        then.
        """
        value = event[1] if isinstance(event, tuple) else event
        if not isinstance(value, Progress) or value.done >= value.total:
            return False
        with self.pause_lock:
            if number not in self.pause_requests:
                return False
            self.pause_requests.discard(number)
            self.paused[number] = events
        return True

    def wait_for_room(self, number: int) -> None:
        """Returns when the caller has room for another event. With one call at a time, the socket limits the events."""

    def stop_if_cancelled(self, number: int) -> None:
        """Raises `Cancelled` where the caller wants no more of the call."""
        if number in self.cancelled:
            raise Cancelled("the call was stopped")

    def reporting(self, number: int) -> contextlib.AbstractContextManager[None]:
        """Sends what is reported within the block to the parent: the progress of a load, or of a call."""

        def listener(fraction: float, activity: str) -> None:
            if number:
                self.stop_if_cancelled(number)
            self.send("progress", number, (float(fraction), str(activity)))

        return listening(listener)

    def send(self, kind: str, number: int, value: Any) -> None:
        """Sends one message; the parent may be gone, then so are we."""
        message = pickle.dumps((kind, number, value), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            with self.sending:
                self.connection.send_bytes(message)
        except OSError:
            self.end()

    def end(self) -> None:
        """Ends the process and all that it has started."""
        _end(self.tempdir)


class ParallelServer(_Server):
    """Runs each call in a thread of its own. A cancelled call that does not stop is ignored."""

    def __init__(self, connection: ConnectionLike, spec: SessionSpec, tempdir: Path | None):
        super().__init__(connection, spec, tempdir)
        self.running: dict[int, _Running] = {}

    def accept_call(self, number: int, payload: bytes) -> None:
        """Starts the thread of a call."""
        self.running[number] = _Running()
        try:
            threading.Thread(target=self.run_in_thread, args=(number, payload), daemon=True).start()
        except RuntimeError as error:  # there are too many
            del self.running[number]
            self.send("error", number, _portable(error, f"{self.spec.name} on {self.spec.runtime} failed"))

    def handle_message(self, kind: str, number: int, *values: Any) -> None:
        """Does what a message asks for, if the message is not a call."""
        running = self.running.get(number)
        if kind == "close":
            threading.Thread(target=self.close, daemon=True).start()
        elif running is not None and kind == "cancel":
            running.cancelled = True
            running.room.release()  # it may be waiting for that
        elif running is not None and kind == "more":
            running.room.release(*values)

    def run_in_thread(self, number: int, payload: bytes) -> None:
        """Runs a call to its end, whatever that is."""
        try:
            self.run_call(number, payload)
        except BaseException as error:
            self.send("error", number, _portable(error, f"{self.spec.name} on {self.spec.runtime} failed"))
        finally:
            del self.running[number]

    def wait_for_room(self, number: int) -> None:
        """Returns when the caller has room for another event, or wants no more."""
        self.running[number].room.acquire()

    def stop_if_cancelled(self, number: int) -> None:
        """Raises `Cancelled` where the caller wants no more of the call."""
        if self.running[number].cancelled:
            raise Cancelled("the call was stopped")

    def close(self) -> None:
        """Closes the model, so that an engine can end in order, and ends the process."""
        with contextlib.suppress(Exception):
            if self.session is not None:
                self.session.close()
        self.end()


class _Running:
    """A call at work beside others."""

    def __init__(self) -> None:
        self.cancelled = False
        self.room = threading.Semaphore(EVENTS_AHEAD)  # for events that the caller has not used yet


def _end(tempdir: Path | None) -> NoReturn:
    """Ends this process and those that it has started, and removes their temporary files."""
    killed = {os.getpid()}
    if os.getpgrp() == os.getpid():  # a group of its own, which the parent has made
        killed |= end_others(os.getpid())
    if tempdir:
        remove_tempdir(tempdir, killed)
    os._exit(0)


def _unneeded_packages(spec: SessionSpec) -> list[str]:
    """Returns the packages that this session's process does without."""
    family = FAMILIES.get(spec.family)
    return unused_packages(spec.runtime, outside=family is None or bool(family.package))


def _portable(error: BaseException, doing: str) -> tuple[type[WorkbenchError], str, str]:
    """Returns class, sentence and notes of an error. They can be pickled, whatever the error holds.

    An error of this project keeps its sentence. Any other error is named, and its traceback becomes the note.
    """
    if isinstance(error, WorkbenchError):
        return next(kind for kind in ERRORS if isinstance(error, kind)), str(error), ""
    notes = "".join(traceback.format_exception(error))
    if is_lack_of_memory(error):
        return OutOfMemory, f"{doing}: there is not enough memory", notes
    return WorkbenchError, f"{doing}: {named_message_of(error)}", notes


def main() -> None:
    """Entry of the child process; the first argument is the number of the inherited socket."""
    serve(int(sys.argv[1]))


def serve(socket: int) -> None:
    """Serves one session until the parent hangs up; `socket` is the number of the inherited socket."""
    use_one_heap()
    connection = Connection(socket)
    allow_forks(connection.close)  # otherwise the parent would not notice the end of this process
    with contextlib.suppress(EOFError):
        _, spec, parallel, tempdir = connection.recv()
        server = ParallelServer if parallel else _Server
        server(connection, spec, tempdir).run()


if __name__ == "__main__":
    main()
