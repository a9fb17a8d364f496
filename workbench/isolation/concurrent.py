"""A session in a process of its own that takes several calls at once: the model batches them, not we.

One thread reads what the child says and hands it to the calls by their numbers, one writes what is said to the child.
Neither waits for a caller: of each call the child sends only as many events ahead as the caller has made room for. A
crash or a kill of the process ends every running call with one clear error; the next call starts a new process. This
file knows no model.
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
from workbench.core.progress import overhearing, report
from workbench.core.settings import SessionSpec
from workbench.core.visitors import check_work, present_work
from workbench.isolation import serial
from workbench.isolation.base import BEAT_SECONDS, Calls, IsolatedSession, revived
from workbench.isolation.channel import ConnectionLost, Link, wait_until_prepared
from workbench.isolation.threads import ThreadLink, in_threads
from workbench.isolation.worker import AHEAD
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
        self._life: _Connection | None = None
        self._previous: _Connection | None = None  # may still be ending

    @property
    def pid(self) -> int | None:
        """The child's process id, or None while there is none."""
        for life in (self._life, self._previous):
            link = life.link if life is not None else None
            if link is not None and link.alive:
                return link.pid
        return None

    @property
    def loaded(self) -> bool:
        """Whether the model is loaded or being loaded."""
        return any(
            life is not None and life.link is not None and life.link.alive for life in (self._life, self._previous)
        )

    @property
    def busy(self) -> bool:
        """Whether a call is running or the model is being loaded."""
        life = self._life
        return life is not None and (bool(life.calls) or not life.opened)

    @property
    def occupied(self) -> bool:
        """Whether a call would have to wait for a load that another one asked for."""
        return self.loading

    @property
    def loading(self) -> bool:
        """Whether the model is being loaded."""
        life = self._life
        return life is not None and not life.opened

    def start(self) -> None:
        """Starts the process and loads the model, if that has not been done. Raises what loading raises."""
        while True:
            with self._joined(self) as (life, _, fresh):
                if fresh or (life.link is not None and life.link.alive):
                    return
            life.thread.join()  # it has died, and is about to be taken note of

    def unload(self) -> bool:
        """Ends the process unless a call is running; returns whether it did. The next call loads the model again."""
        with self._state:
            life = self._life or self._previous
            if life is not None and life is self._life and life.calls:
                return False
            self._leave_behind(life)
        if life is not None:
            life.end(CLOSE_SECONDS)
        return True

    def cancel(self) -> None:
        """Stops all calls that run, from any thread; they raise `Cancelled` at once."""
        self._stop(None)

    def close(self) -> None:
        """Ends the process for good; running calls end with `SessionDied`."""
        with self._state:
            self._closed = True
            life = self._life
            self._leave_behind(life)
        if life is not None:
            life.tell("lost")
            life.end(CLOSE_SECONDS)

    def slot(self) -> Calls:
        """The calls of one user, who cancels none of another's."""
        return _Slot(self)

    # How calls travel.

    def _replies(self, call: Call, payload: bytes) -> Generator[Any, None, None]:
        return self._made(call, payload, self)

    def _made(self, made: Call, payload: bytes, user: object) -> Generator[Any, None, None]:
        doing = made.capability.doing
        while True:
            with self._joined(user) as (life, call, fresh):
                taken, used, call.sent = False, 0, True
                life.send("call", call.number, payload=payload)
                while True:
                    kind, value = _message(call)
                    if call.cancelled:
                        raise self._stopped(doing)
                    if kind == "lost":
                        call.sent = False
                        # A process that ended before it took the call was killed between calls: nothing is lost yet.
                        if taken or fresh or self._closed:
                            raise self._death(life.how, doing)
                        break
                    taken = taken or kind != "opened"
                    if kind in ("done", "error"):
                        call.sent = False
                        if kind == "error":
                            raise revived(*value)
                        if value is not None:
                            yield value
                        return
                    if kind == "progress":
                        report(*value)
                    if kind == "event":
                        used += 1
                        if used == AHEAD // 2:
                            life.send("more", call.number, used)
                            used = 0
                        yield value
            life.thread.join()

    @contextlib.contextmanager
    def _joined(self, user: object) -> Iterator[tuple[_Connection, _OpenCall, bool]]:
        """A call among those of the running process, which is started if need be; and whether it waited for that."""
        call = _OpenCall(next(self._numbers), user)
        with self._state:
            self._check_open()
            life = self._life
            if life is None:
                life = self._life = _Connection(self, self._previous)
                life.thread.start()
            fresh = not life.opened
            life.calls[call.number] = call
        try:
            if fresh:
                self._wait_for_load(life, call)
            yield life, call, fresh
        finally:
            self._leave(life, call)

    def _wait_for_load(self, life: _Connection, call: _OpenCall) -> None:
        """Returns when the model is loaded, and passes on meanwhile how far that is."""
        while not life.opened:
            check_work()
            report(*life.told)
            with contextlib.suppress(queue.Empty):
                kind, _ = call.messages.get(timeout=BEAT_SECONDS)
                if call.cancelled:
                    raise self._stopped("loading")
                if kind == "lost":
                    raise self._load_error(life)

    def _load_error(self, life: _Connection) -> WorkbenchError:
        """Why a load came to nothing: an error for each of those who waited, as raising one changes it."""
        error = life.error
        if error is None or self._closed:
            return self._death(life.how, "loading")
        if not isinstance(error, WorkbenchError):
            return WorkbenchError(f"{self.model} on {self.runtime} could not be loaded: {named_message_of(error)}")
        again = type(error)(str(error))
        for note in getattr(error, "__notes__", ()):
            again.add_note(note)
        return again

    def _leave(self, life: _Connection, call: _OpenCall) -> None:
        """The end of a call, also of one that is collected with its stream: no lock may be waited for then."""
        life.calls.pop(call.number, None)
        self.last_used = time.monotonic()
        if call.sent:
            life.send("cancel", call.number)
        if life.opened:
            return
        with self._state:
            unwanted = self._life is life and not life.opened and not life.calls
            if unwanted:
                self._leave_behind(life)
        if unwanted:
            life.end()

    def _stop(self, user: object | None) -> None:
        """Stops the calls of a user, or all."""
        life = self._life
        for call in list(life.calls.values()) if life is not None else ():
            if user is None or call.user is user:
                call.cancelled = True
                call.messages.put(("cancelled", None))

    def _leave_behind(self, life: _Connection | None) -> None:
        """Makes the next call start a new process, when that of this life is gone. With `_state` held."""
        if life is not None and self._life is life:
            self._life, self._previous = None, life


class _Slot(Calls):
    """The calls of one of the users of a session."""

    def __init__(self, session: ParallelSession):
        self.spec, self.model, self.runtime = session.spec, session.model, session.runtime
        self.load_seconds = session.load_seconds
        self._session = session

    def _replies(self, call: Call, payload: bytes) -> Generator[Any, None, None]:
        return self._session._made(call, payload, self)

    def cancel(self) -> None:
        """Stops this user's calls."""
        self._session._stop(self)

    def close(self) -> None:
        """Stops this user's calls; the session stays open."""
        self._session._stop(self)


class _OpenCall:
    """A call that waits for a load or for what the child says."""

    def __init__(self, number: int, user: object):
        self.number = number
        self.user = user
        self.messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.cancelled = False
        self.sent = False  # and not answered to the end


class _Connection:
    """One life of the child, with the calls that run in it or wait for it; its thread loads the model and then reads.

    Args:
        previous: must be over before this one begins, so that its memory is free.
    """

    def __init__(self, session: ParallelSession, previous: _Connection | None):
        self.calls: dict[int, _OpenCall] = {}  # by their numbers
        self.link: Link | ThreadLink | None = None
        self.opened = False
        self.told = (0.0, f"loading {session.model}")  # how far the load is
        self.error: BaseException | None = None  # why it could not be loaded
        self.how = "hung up"
        self.thread = threading.Thread(target=self._live, name=f"session of {session.model}", daemon=True)
        self._session = session
        self._previous = previous
        self._unwanted = False
        self._outbox: queue.SimpleQueue[tuple[tuple[Any, ...], bytes | None] | None] = queue.SimpleQueue()

    def send(self, *message: Any, payload: bytes | None = None) -> None:
        """Sends a message to the child in a while; of no consequence when that is gone."""
        self._outbox.put((message, payload))

    def tell(self, kind: str, value: Any = None) -> None:
        """A message to every call."""
        for call in list(self.calls.values()):
            call.messages.put((kind, value))

    def end(self, patience: float = 0.0) -> None:
        """Ends the process and waits until its memory is free; before, it may close its model for so many seconds."""
        with self._session._state:
            self._unwanted = True
            link = self.link
        if link is not None:
            if patience and self.opened:
                self.send("close", 0)
            link.end(patience if self.opened else 0.0)

    def _live(self) -> None:
        try:
            if self._previous is not None:
                self._previous.thread.join()
                self._previous = None
            self._load()
            assert self.link is not None
            while True:
                kind, number, value = self.link.receive()
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
        with overhearing(self._note), session._admitted(session) if session._admitted else contextlib.nullcontext():
            begun = time.perf_counter()
            if not in_threads(session.spec):
                wait_until_prepared(session.spec, serial.CHILD)
            with session._state:
                if self._unwanted:
                    raise ConnectionLost
                link = self.link = _new_link(session.spec)
            threading.Thread(target=self._write, args=(link,), daemon=True).start()
            self.send("open", session.spec, True, link.tempdir)
            kind = ""
            while kind != "opened":
                kind, _, value = link.receive()
                if kind == "error":
                    raise revived(*value)
                if kind == "progress":
                    report(*value)
            session._opened(value, time.perf_counter() - begun)
        with session._state:
            self.opened = True
        self.tell("opened")

    def _note(self, fraction: float, activity: str) -> None:
        """Keeps how far the load is for those who wait for it."""
        if self._unwanted:
            raise ConnectionLost
        self.told = fraction, activity

    def _write(self, link: Link | ThreadLink) -> None:
        """Sends what is to be sent. The outbox may be filled from anywhere, a stream that is collected included."""
        with contextlib.suppress(ConnectionLost):
            while (sent := self._outbox.get()) is not None:
                message, payload = sent
                link.send(*message, payload=payload)

    def _finish(self) -> None:
        """Tells every call of the end, when the process is gone."""
        session = self._session
        try:
            if self.link is not None:
                self.how = self.link.how_it_ended()
                self.link.end()
        finally:
            self._outbox.put(None)
            with session._state:
                session._leave_behind(self)
                if session._previous is self:
                    session._previous = None
            self.tell("lost")


def _message(call: _OpenCall) -> tuple[str, Any]:
    """Waits for the next message of a call; raises what the work of this context raises when it is to end."""
    if present_work() is None:
        return call.messages.get()
    while True:
        try:
            return call.messages.get(timeout=BEAT_SECONDS)
        except queue.Empty:
            check_work()


def _new_link(spec: SessionSpec) -> Link | ThreadLink:
    """Starts the process of a session, or what stands for it where it needs none."""
    return ThreadLink() if in_threads(spec) else Link(spec, serial.CHILD, parallel=True)
