"""A session in a separate process that takes several calls at once; the model batches the calls, not this file.

One thread reads the child's messages and passes them to the calls by their numbers; another thread writes the messages
to the child. Neither thread waits for a caller, because the child sends only as many events of a call as its caller has
room for. A crash or a kill of the process ends every running call with one clear error; the next call starts a new
process. This file knows no model.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from workbench.core.errors import WorkbenchError, named_message_of
from workbench.core.progress import listening_too, report
from workbench.core.settings import SessionSpec
from workbench.core.visitors import check_work, current_work
from workbench.isolation import serial
from workbench.isolation.base import BEAT_SECONDS, Calls, IsolatedSession, restored_error
from workbench.isolation.channel import Channel, ConnectionLost, wait_until_prepared
from workbench.isolation.threads import ThreadChannel, in_threads
from workbench.isolation.worker import EVENTS_AHEAD
from workbench.session.calls import Call

CLOSE_SECONDS = 3.0  # how long a child may take to close its model before it is ended


class ParallelSession(IsolatedSession):
    """A session in a child process, any number of calls at once. See `IsolatedSession`."""

    def __init__(
        self,
        spec: SessionSpec,
        admitted: Callable[[IsolatedSession], contextlib.AbstractContextManager[None]] | None = None,
    ):
        super().__init__(spec, admitted)
        self._numbers = itertools.count(1)
        self._state = threading.RLock()  # guards what follows; held for moments only, and by no call that is collected
        self._worker: _WorkerProcess | None = None
        self._previous: _WorkerProcess | None = None  # may still be ending

    @property
    def pid(self) -> int | None:
        """The child's process id, or None while there is none."""
        for worker in (self._worker, self._previous):
            channel = worker.channel if worker is not None else None
            if channel is not None and channel.alive:
                return channel.pid
        return None

    @property
    def loaded(self) -> bool:
        """Whether the model is loaded or being loaded."""
        return any(
            worker is not None and worker.channel is not None and worker.channel.alive
            for worker in (self._worker, self._previous)
        )

    @property
    def busy(self) -> bool:
        """Whether a call is running or the model is being loaded."""
        worker = self._worker
        return worker is not None and (bool(worker.calls) or not worker.opened)

    @property
    def occupied(self) -> bool:
        """Whether a call would have to wait for a load that another call started."""
        return self.loading

    @property
    def loading(self) -> bool:
        """Whether the model is being loaded."""
        worker = self._worker
        return worker is not None and not worker.opened

    def start(self) -> None:
        """Starts the process and loads the model, if that has not been done. Raises what loading raises."""
        while True:
            with self._join_worker(self) as (worker, _, fresh):
                if fresh or (worker.channel is not None and worker.channel.alive):
                    return
            worker.thread.join()  # it has died; its thread will soon notice

    def unload(self) -> bool:
        """Ends the process unless a call is running; returns whether it did. The next call loads the model again."""
        with self._state:
            worker = self._worker or self._previous
            if worker is not None and worker is self._worker and worker.calls:
                return False
            self._leave_behind(worker)
        if worker is not None:
            worker.end(CLOSE_SECONDS)
        return True

    def cancel(self) -> None:
        """Stops all calls that run, from any thread; they raise `Cancelled` at once."""
        self._stop(None)

    def close(self) -> None:
        """Ends the process for good; running calls end with `SessionDied`."""
        with self._state:
            self._closed = True
            worker = self._worker
            self._leave_behind(worker)
        if worker is not None:
            worker.notify_calls("lost")
            worker.end(CLOSE_SECONDS)

    def slot(self) -> Calls:
        """Returns the calls of one user; `cancel` affects only this user's calls."""
        return _Slot(self)

    # How calls travel.

    def _replies(self, call: Call, payload: bytes) -> Generator[Any, None, None]:
        return self._run_call(call, payload, self)

    def _run_call(self, request: Call, payload: bytes, user: object) -> Generator[Any, None, None]:
        doing = request.capability.activity
        while True:
            with self._join_worker(user) as (worker, call, fresh):
                accepted, consumed, call.sent = False, 0, True
                worker.send("call", call.number, payload=payload)
                while True:
                    kind, value = _message(call)
                    if call.cancelled:
                        raise self._cancelled_error(doing)
                    if kind == "lost":
                        call.sent = False
                        # A process that ended before it took the call was killed between calls: nothing is lost yet.
                        if accepted or fresh or self._closed:
                            raise self._died_error(worker.ending, doing)
                        break
                    accepted = accepted or kind != "opened"
                    if kind in ("done", "error"):
                        call.sent = False
                        if kind == "error":
                            raise restored_error(*value)
                        if value is not None:
                            yield value
                        return
                    if kind == "progress":
                        report(*value)
                    if kind == "event":
                        consumed += 1
                        if consumed == EVENTS_AHEAD // 2:
                            worker.send("more", call.number, consumed)
                            consumed = 0
                        yield value
            worker.thread.join()

    @contextlib.contextmanager
    def _join_worker(self, user: object) -> Iterator[tuple[_WorkerProcess, _OpenCall, bool]]:
        """Yields the process (started if needed), a new call in it, and whether the call waited for the start."""
        call = _OpenCall(next(self._numbers), user)
        with self._state:
            self._check_open()
            worker = self._worker
            if worker is None:
                worker = self._worker = _WorkerProcess(self, self._previous)
                worker.thread.start()
            fresh = not worker.opened
            worker.calls[call.number] = call
        try:
            if fresh:
                self._wait_for_load(worker, call)
            yield worker, call, fresh
        finally:
            self._leave(worker, call)

    def _wait_for_load(self, worker: _WorkerProcess, call: _OpenCall) -> None:
        """Returns when the model is loaded; reports the progress of the load meanwhile."""
        while not worker.opened:
            check_work()
            report(*worker.load_progress)
            with contextlib.suppress(queue.Empty):
                kind, _ = call.messages.get(timeout=BEAT_SECONDS)
                if call.cancelled:
                    raise self._cancelled_error("loading")
                if kind == "lost":
                    raise self._load_error(worker)

    def _load_error(self, worker: _WorkerProcess) -> WorkbenchError:
        """Returns why a load failed: a new error for each waiting caller, because raising an error changes it."""
        error = worker.error
        if error is None or self._closed:
            return self._died_error(worker.ending, "loading")
        if not isinstance(error, WorkbenchError):
            return WorkbenchError(f"{self.model} on {self.runtime} could not be loaded: {named_message_of(error)}")
        copy = type(error)(str(error))
        for note in getattr(error, "__notes__", ()):
            copy.add_note(note)
        return copy

    def _leave(self, worker: _WorkerProcess, call: _OpenCall) -> None:
        """Ends a call. The garbage collector may call this with a stream, so it must not wait for a lock."""
        worker.calls.pop(call.number, None)
        self.last_used = time.monotonic()
        if call.sent:
            worker.send("cancel", call.number)
        if worker.opened:
            return
        with self._state:
            unwanted = self._worker is worker and not worker.opened and not worker.calls
            if unwanted:
                self._leave_behind(worker)
        if unwanted:
            worker.end()

    def _stop(self, user: object | None) -> None:
        """Stops the calls of a user, or all."""
        worker = self._worker
        for call in list(worker.calls.values()) if worker is not None else ():
            if user is None or call.user is user:
                call.cancelled = True
                call.messages.put(("cancelled", None))

    def _leave_behind(self, worker: _WorkerProcess | None) -> None:
        """Makes the next call start a new process after this worker's has ended. The caller holds `_state`."""
        if worker is not None and self._worker is worker:
            self._worker, self._previous = None, worker


class _Slot(Calls):
    """The calls of one of the users of a session."""

    def __init__(self, session: ParallelSession):
        self.spec, self.model, self.runtime = session.spec, session.model, session.runtime
        self.load_seconds = session.load_seconds
        self._session = session

    def _replies(self, call: Call, payload: bytes) -> Generator[Any, None, None]:
        return self._session._run_call(call, payload, self)

    def cancel(self) -> None:
        """Stops this user's calls."""
        self._session._stop(self)

    def close(self) -> None:
        """Stops this user's calls; the session stays open."""
        self._session._stop(self)


class _OpenCall:
    """A call that waits for a load or for the child's messages."""

    def __init__(self, number: int, user: object):
        self.number = number
        self.user = user
        self.messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.cancelled = False
        self.sent = False  # and not answered to the end


class _WorkerProcess:
    """One process of the session, with the calls that run in it or wait for it. Its thread loads the model, then reads.

    Args:
        previous: must have ended before this one starts, so that its memory is free.
    """

    def __init__(self, session: ParallelSession, previous: _WorkerProcess | None):
        self.calls: dict[int, _OpenCall] = {}  # by their numbers
        self.channel: Channel | ThreadChannel | None = None
        self.opened = False
        self.load_progress = (0.0, f"loading {session.model}")  # how far the load is
        self.error: BaseException | None = None  # why it could not be loaded
        self.ending = "hung up"
        self.thread = threading.Thread(target=self._run, name=f"session of {session.model}", daemon=True)
        self._session = session
        self._previous = previous
        self._end_requested = False
        self._outbox: queue.SimpleQueue[tuple[tuple[Any, ...], bytes | None] | None] = queue.SimpleQueue()

    def send(self, *message: Any, payload: bytes | None = None) -> None:
        """Queues a message to the child; has no effect if the child has ended."""
        self._outbox.put((message, payload))

    def notify_calls(self, kind: str) -> None:
        """Puts a message of this kind in the queue of every call."""
        for call in list(self.calls.values()):
            call.messages.put((kind, None))

    def end(self, patience: float = 0.0) -> None:
        """Ends the process and waits until its memory is free.

        The child has `patience` seconds to close its model first.
        """
        with self._session._state:
            self._end_requested = True
            channel = self.channel
        if channel is not None:
            if patience and self.opened:
                self.send("close", 0)
            channel.end(patience if self.opened else 0.0)

    def _run(self) -> None:
        try:
            if self._previous is not None:
                self._previous.thread.join()
                self._previous = None
            self._load()
            assert self.channel is not None
            while True:
                kind, number, value = self.channel.receive()
                call = self.calls.get(number)
                if call is not None:
                    call.messages.put((kind, value))
        except ConnectionLost:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self._finish()

    def _load(self) -> None:
        """Starts the process and returns when the model is loaded."""
        session = self._session
        with listening_too(self._note), session._admitted(session) if session._admitted else contextlib.nullcontext():
            start = time.perf_counter()
            if not in_threads(session.spec):
                wait_until_prepared(session.spec, serial.CHILD)
            with session._state:
                if self._end_requested:
                    raise ConnectionLost
                channel = self.channel = _new_channel(session.spec)
            threading.Thread(target=self._write, args=(channel,), daemon=True).start()
            self.send("open", session.spec, True, channel.tempdir)
            kind = ""
            while kind != "opened":
                kind, _, value = channel.receive()
                if kind == "error":
                    raise restored_error(*value)
                if kind == "progress":
                    report(*value)
            session._opened(value, time.perf_counter() - start)
        with session._state:
            self.opened = True
        self.notify_calls("opened")

    def _note(self, fraction: float, activity: str) -> None:
        """Stores the progress of the load for the calls that wait for it."""
        if self._end_requested:
            raise ConnectionLost
        self.load_progress = fraction, activity

    def _write(self, channel: Channel | ThreadChannel) -> None:
        """Sends the messages in the outbox. Any thread may fill it, even the garbage collector with a stream."""
        with contextlib.suppress(ConnectionLost):
            while (entry := self._outbox.get()) is not None:
                message, payload = entry
                channel.send(*message, payload=payload)

    def _finish(self) -> None:
        """Sends every call a message about the end of the process."""
        session = self._session
        try:
            if self.channel is not None:
                self.ending = self.channel.how_it_ended()
                self.channel.end()
        finally:
            self._outbox.put(None)
            with session._state:
                session._leave_behind(self)
                if session._previous is self:
                    session._previous = None
            self.notify_calls("lost")


def _message(call: _OpenCall) -> tuple[str, Any]:
    """Waits for the next message of a call; raises the error of this context's work when the work has to end."""
    if current_work() is None:
        return call.messages.get()
    while True:
        try:
            return call.messages.get(timeout=BEAT_SECONDS)
        except queue.Empty:
            check_work()


def _new_channel(spec: SessionSpec) -> Channel | ThreadChannel:
    """Starts the process of a session; a session on a server gets threads in its place."""
    return ThreadChannel() if in_threads(spec) else Channel(spec, serial.CHILD, parallel=True)
