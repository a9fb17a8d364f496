"""A session in a separate process that takes one call at a time.

A server has a queue of calls. There, a stream lets other calls go first between two of its segments: it pauses in the
child until the message "resume" comes.

A crash or a kill of that process ends the running call with one clear error; the next call starts a new process.
`workbench.isolation.worker` is the other end and lists the messages. This file knows no model.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

from workbench.core.errors import BadInput, Cancelled, OutOfMemory, WorkbenchError
from workbench.core.progress import listening_too, report
from workbench.core.settings import SessionSpec
from workbench.core.visitors import check_work, current_work
from workbench.isolation.base import BEAT_SECONDS, WAITING, Calls, IsolatedSession, restored_error
from workbench.isolation.channel import WORKER, Channel, ConnectionLost, wait_until_prepared
from workbench.session.calls import Call
from workbench.session.values import Progress
from workbench.system.memory import limit_data

CHILD = WORKER
SHORT_SECONDS = 30.0  # of speech; a call for a recording up to this length keeps its turn to its end
FIRST_CHECK_SECONDS, LAST_CHECK_SECONDS = 0.2, 5.0  # how soon and how often a waiting call checks what it waits for

_flow: ContextVar[object] = ContextVar("flow")


class ProcessSession(IsolatedSession):
    """A session in a child process, one call at a time: others wait their turn. See `IsolatedSession`."""

    def __init__(
        self,
        spec: SessionSpec,
        admitted: Callable[[IsolatedSession], contextlib.AbstractContextManager[None]] | None = None,
    ):
        super().__init__(spec, admitted)
        self._turn = threading.Lock()  # held during a call, also while a stream waits for its reader
        self._holder: tuple[object, int] | None = None  # who moved the call that has the turn
        self._resting = False  # whether that call is a stream that waits for its reader
        self._preparing = False  # whether a load waits for a prepared process
        self._load_progress: tuple[float, str] | None = None  # what that call waits for, before the model is loaded
        self._state = threading.Lock()  # guards what follows; held for moments only
        self._channel: Channel | None = None
        self._number = 0  # of the latest call
        self._working = 0  # the number of the call that has the turn, 0 while none has it
        self._cancelled = 0  # the number of the call that was cancelled last
        self.short_seconds = SHORT_SECONDS
        self._paused: dict[int, deque[tuple[str, Any]]] = {}  # messages of streams that let others go first

    # What the registry asks.

    @property
    def pid(self) -> int | None:
        """The child's process id, or None while there is none."""
        channel = self._channel
        return channel.process.pid if channel is not None and channel.alive else None

    @property
    def busy(self) -> bool:
        """Whether a call is running or the model is being loaded."""
        return self._turn.locked() or bool(self._paused)

    @property
    def occupied(self) -> bool:
        """Whether a call would have to wait for another one."""
        return self._turn.locked()

    @property
    def loading(self) -> bool:
        """Whether the model is being loaded."""
        channel = self._channel
        return self._preparing or (channel is not None and not channel.opened)

    def start(self) -> None:
        """Starts the process and loads the model, if that has not been done. Raises what loading raises."""
        channel = self._channel
        if channel is not None and channel.opened and channel.alive and not self._closed:
            self.last_used = time.monotonic()
            return  # no need to wait for a call that runs
        with self._taking_turn() as number:
            self._running_channel(number)

    def unload(self) -> bool:
        """Ends the process unless a call is running; returns whether it did. The next call loads the model again."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self._paused:
                return False
            if self._channel is not None:
                self._end_channel(self._channel)
        finally:
            self._turn.release()
        return True

    # The session.

    def cancel(self) -> None:
        """Stops the running call, which raises `Cancelled`.

        Any thread may call this. Without a call nothing happens.
        """
        with self._state:
            if not self._turn.locked():
                return
            number = self._cancelled = self._working or self._number
            channel = self._channel
        if channel is None:
            return  # not started yet, and will not be
        if channel.opened:
            with contextlib.suppress(ConnectionLost):
                channel.send("cancel", number)
        else:
            channel.end()

    def close(self) -> None:
        """Ends the process for good; a running call ends with `SessionDied`."""
        with self._state:
            self._closed = True
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.end()

    def slot(self) -> Calls:
        """This session: only one call runs, and any user may stop it."""
        return self

    # How calls travel.

    @contextlib.contextmanager
    def _taking_turn(self) -> Iterator[int]:
        """Waits for the turn and gives the number of the call."""
        self._wait_for_turn()
        with self._state:
            self._number += 1
            number = self._number
        self._begin(number)
        try:
            yield number
        finally:
            self._paused.pop(number, None)
            if self._working == number:  # a call that lets others go first has no turn to give back
                self._end_turn()

    def _begin(self, number: int) -> None:
        self._working, self._holder = number, _caller()

    def _end_turn(self) -> None:
        self.last_used = time.monotonic()
        self._working, self._holder = 0, None
        self._turn.release()

    def _yield_turn(self, channel: Channel, number: int) -> None:
        """Lets the calls that wait in the queue of a server go first, as soon as the child has ended a segment."""
        work = current_work()
        assert work is not None
        self._paused.setdefault(number, deque())
        channel.send("pause", number)
        self._end_turn()
        work.yield_turn()
        self._wait_for_turn()
        self._begin(number)
        channel.send("resume", number)

    def _wait_for_turn(self) -> None:
        """Waits for the turn; reports to a listener what the call waits for."""
        caller, patience, beat = _caller(), FIRST_CHECK_SECONDS, 0.0
        deadline = time.monotonic() + patience
        while not self._turn.acquire(timeout=beat):
            self._check_open()
            check_work()
            is_late = time.monotonic() >= deadline
            if self._resting and (is_late or self._holder == caller):
                gc.collect()  # an unused stream in a reference cycle keeps the turn until it is collected
                if self._holder == caller:
                    raise BadInput(f"a stream of {self.model} is still open here; read it to its end or close it first")
            if is_late:
                patience = min(2 * patience + FIRST_CHECK_SECONDS, LAST_CHECK_SECONDS)
                deadline = time.monotonic() + patience
            report(*(self._load_progress or (0.0, WAITING)))
            beat = BEAT_SECONDS

    def _replies(self, call: Call, payload: bytes) -> Generator[Any, None, None]:
        with self._taking_turn() as number:
            while True:
                channel, is_new = self._running_channel(number)
                accepted = finished = long = False
                try:
                    channel.send("call", number, payload=payload)
                    while not finished:
                        kind, value = self._next_message(channel, number, call.has_segments and long)
                        accepted = True
                        finished = kind in ("done", "error")
                        if kind == "error":
                            if issubclass(value[0], OutOfMemory) and not self._paused:
                                # It keeps much of what it has, and the next call would fail too.
                                self._end_channel(channel)
                            raise restored_error(*value)
                        if kind == "progress":
                            report(*value)
                        if kind == "event":
                            long = long or self._is_long(value)
                        if kind == "event" or (kind == "done" and value is not None):
                            self._resting = True
                            try:
                                yield value
                            finally:
                                self._resting = False
                            self._holder = _caller()  # a stream may be handed from thread to thread
                    return
                except ConnectionLost:
                    finished = True
                    error = self._connection_error(channel, call.capability.activity, number)
                    # A process that ended before it took the call was killed between calls: nothing is lost yet.
                    if accepted or is_new or isinstance(error, Cancelled):
                        raise error from None
                finally:
                    if not finished:
                        with contextlib.suppress(ConnectionLost):
                            channel.send("cancel", number)

    def _is_long(self, event: Any) -> bool:
        """Returns whether the event belongs to a long recording, which lets other calls go first."""
        value = event[1] if isinstance(event, tuple) else event
        return isinstance(value, Progress) and value.total > self.short_seconds

    def _next_message(self, channel: Channel, number: int, yields_turn: bool) -> tuple[str, Any]:
        """Returns the next message of a call; keeps the messages of streams that let this call go first."""
        while True:
            if yields_turn and _others_wait():
                self._yield_turn(channel, number)
            messages = self._paused.get(number)
            if messages:
                return messages.popleft()
            if not channel.wait_for_message(_others_wait if yields_turn else None):
                continue
            kind, of, value = channel.receive()
            if of == number:
                return kind, value
            if of in self._paused:  # else the rest of a call that was given up
                self._paused[of].append((kind, value))

    def _running_channel(self, number: int) -> tuple[Channel, bool]:
        """Returns the channel to the running child, and whether it was started only now.

        The caller must have the turn.
        """
        channel = self._channel
        if channel is not None and channel.alive:
            return channel, False
        try:
            with (
                listening_too(partial(self._note_progress, number)),
                self._admitted(self) if self._admitted else contextlib.nullcontext(),
            ):
                return self._load(number), True
        finally:
            self._load_progress = None

    def _load(self, number: int) -> Channel:
        """Starts the child and waits until the model is loaded."""
        start = time.perf_counter()
        self._preparing = True
        try:
            wait_until_prepared(self.spec, CHILD)
        finally:
            self._preparing = False
        with self._state:
            self._check_open()
            if number == self._cancelled:
                raise Cancelled(f"loading {self.model} was stopped")
            channel = self._channel = Channel(self.spec, CHILD)
        try:
            channel.send("open", self.spec, False, None)
            kind, value = self._wait_until_loaded(channel)
        except ConnectionLost:
            raise self._connection_error(channel, "loading", number) from None
        except BaseException:
            self._end_channel(channel)
            raise
        if kind == "error":
            self._end_channel(channel)
            raise restored_error(*value)
        channel.opened = True
        if self.allowance_bytes is not None and self.spec.settings.device == "cpu":
            limit_data(channel.process.pid, self.allowance_bytes)
        self._opened(value, time.perf_counter() - start)
        return channel

    def _note_progress(self, number: int, fraction: float, activity: str) -> None:
        """Stores what this call waits for, so that waiting calls can report it. Raises if this call was cancelled."""
        self._load_progress = fraction, activity
        if number == self._cancelled:
            raise self._cancelled_error("loading")

    def _wait_until_loaded(self, channel: Channel) -> tuple[str, Any]:
        """Waits for the end of the load; reports its progress meanwhile."""
        progress = (0.0, f"loading {self.model}")
        while True:
            check_work()
            report(*progress)
            if channel.poll(BEAT_SECONDS):
                kind, _, value = channel.receive()
                if kind != "progress":
                    return kind, value
                progress = value

    def _end_channel(self, channel: Channel) -> None:
        """Ends a process and its channel."""
        with self._state:
            if self._channel is channel:
                self._channel = None
        channel.end()

    def _connection_error(self, channel: Channel, doing: str, number: int) -> WorkbenchError:
        """Returns the error to raise when the child has closed the connection."""
        ending = channel.how_it_ended()
        self._end_channel(channel)
        if not self._closed and number == self._cancelled:
            return self._cancelled_error(doing)
        return self._died_error(ending, doing)


def _others_wait() -> bool:
    """Returns whether another call waits in a server's queue for the model of this context."""
    work = current_work()
    return work is not None and work.turn is not None and work.turn.delays_others


def _caller() -> tuple[object, int]:
    """Returns an identity of thread and context; a pool may run steps of many streams in one thread."""
    flow = _flow.get(None)
    if flow is None:
        flow = object()
        _flow.set(flow)
    return flow, threading.get_ident()
