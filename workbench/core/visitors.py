"""For whom the present work is done, and until when. A server says so where a request enters; sessions ask.

The value belongs to the context of a thread (`contextvars`); `bound` takes it along into another thread. Work that
nobody visits for, in a shell or a notebook, has the visitor `NOBODY` and no end.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ParamSpec, Protocol, TypeVar

from workbench.core.errors import Cancelled, WorkbenchError

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Visitor:
    """Somebody who asks a server for work.

    `address` is the network address; `session` tells apart the visitors of one address, such as a class behind one
    router. A visitor chooses its session freely, so limits hold for addresses too.
    """

    address: str = ""
    session: str = ""
    key: str = ""  # the name of the API key that the visitor showed


NOBODY = Visitor()


class Turn(Protocol):
    """The right of a call to work, which it may pass on between two stretches of its work."""

    @property
    def wanted(self) -> bool:
        """Whether another call waits for it."""
        ...

    def let_go(self) -> None:
        """Gives the right to those who wait; `take_back` waits for it."""
        ...

    def take_back(self, work: Work) -> None:
        """Waits until it is this call's turn again; raises what `Work.check` raises."""
        ...


@dataclass(frozen=True, eq=False)
class Work:
    """What is done for a visitor.

    `stop` ends it when it is set, `deadline` (of `time.monotonic`) when it has passed. `paused` has the seconds of
    each time that it let others go first, which do not count. `turn` is that of the call at work, where calls wait in a
    queue.
    """

    visitor: Visitor = NOBODY
    stop: threading.Event = field(default_factory=threading.Event)
    deadline: float | None = None
    allowed_seconds: float = 0.0
    turn: Turn | None = None
    paused: list[float] = field(default_factory=list)

    def let_others_go(self) -> None:
        """Lets those who wait for this work's turn go first; returns when it is its turn again."""
        if self.turn is None:
            return
        begun = time.monotonic()
        self.turn.let_go()
        try:
            self.turn.take_back(replace(self, deadline=None))
        finally:
            self.paused.append(time.monotonic() - begun)

    def check(self) -> None:
        """Raises `Cancelled` when the work was stopped, and `WorkbenchError` when its time is over."""
        if self.stop.is_set():
            raise Cancelled("the run was stopped")
        if self.deadline is not None and time.monotonic() - sum(self.paused) > self.deadline:
            raise WorkbenchError(
                f"the run took longer than the {spoken_seconds(self.allowed_seconds)} that one may take here, and was "
                "ended; take a shorter recording, or ask for fewer tokens"
            )


def spoken_seconds(seconds: float) -> str:
    """Returns a time as words: `40 s`, `10 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


_present: contextvars.ContextVar[Work | None] = contextvars.ContextVar("work", default=None)


def present_work() -> Work | None:
    """Returns the work of this context; None where nobody has said for whom it is."""
    return _present.get()


def present_visitor() -> Visitor:
    """Returns for whom this context works."""
    work = _present.get()
    return work.visitor if work is not None else NOBODY


def present_stop() -> threading.Event:
    """Returns the event that ends the work of this context; a new one where nobody has said for whom it is."""
    work = _present.get()
    return work.stop if work is not None else threading.Event()


def check_work() -> None:
    """Raises what `Work.check` raises for the work of this context."""
    work = _present.get()
    if work is not None:
        work.check()


@contextlib.contextmanager
def visited_by(visitor: Visitor) -> Iterator[Work]:
    """Within the block, the work is the visitor's."""
    with working(Work(visitor)) as work:
        yield work


@contextlib.contextmanager
def working(work: Work) -> Iterator[Work]:
    """Within the block, that is the work of this context."""
    token = _present.set(work)
    try:
        yield work
    finally:
        _present.reset(token)


@contextlib.contextmanager
def stoppable(stop: threading.Event, seconds: float | None = None) -> Iterator[Work]:
    """Within the block, `stop` ends the work of the present visitor too, and so does the end of the time, if any."""
    work = replace(_present.get() or Work(), stop=stop)
    if seconds is not None:
        deadline = time.monotonic() + seconds
        if work.deadline is None or deadline < work.deadline:
            work = replace(work, deadline=deadline, allowed_seconds=seconds)
    with working(work):
        yield work


def bound(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Returns the function for another thread, where it works for the visitor of this one."""
    context = contextvars.copy_context()

    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        return context.copy().run(function, *args, **kwargs)

    return run
