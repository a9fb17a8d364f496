"""Who the current work is for, and its time limit. A server sets them when a request arrives; sessions read them.

The value belongs to the context of a thread (`contextvars`); `in_current_context` takes it into another thread. Work
without a server, in a shell or a notebook, has the visitor `NOBODY` and no time limit.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ParamSpec, Protocol, TypeVar

from workbench.core.errors import BadInput, Cancelled, WorkbenchError

Parameters = ParamSpec("Parameters")
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
    """A call's right to run. A call may give it to waiting calls between two parts of its work."""

    @property
    def delays_others(self) -> bool:
        """Whether another call waits for the right to run."""
        ...

    def release(self) -> None:
        """Gives the right to run to a waiting call; `reacquire` waits for its return."""
        ...

    def reacquire(self, work: Work) -> None:
        """Waits until it is this call's turn again; raises what `Work.check` raises."""
        ...


@dataclass(frozen=True, eq=False)
class Work:
    """The work for a visitor.

    The work ends when `stop` is set, or when `deadline` (of `time.monotonic`) has passed. `paused` lists the seconds in
    which other calls went first; they do not count. `turn` is the current call's right to run, if calls wait in a
    queue. `tell` returns an error with the sentence that the visitor may read.
    """

    visitor: Visitor = NOBODY
    stop: threading.Event = field(default_factory=threading.Event)
    deadline: float | None = None
    allowed_seconds: float = 0.0
    turn: Turn | None = None
    paused: list[float] = field(default_factory=list)
    tell: Callable[[WorkbenchError], WorkbenchError] | None = None  # None: every error as it is

    def yield_turn(self) -> None:
        """Lets waiting calls run first; returns when it is this call's turn again."""
        if self.turn is None:
            return
        start = time.monotonic()
        self.turn.release()
        try:
            self.turn.reacquire(replace(self, deadline=None))
        finally:
            self.paused.append(time.monotonic() - start)

    def check(self) -> None:
        """Raises `Cancelled` if the work was stopped, and `BadInput` if its time is over.

        Clients repeat a request after a fault of the server, and this one would take as long again.
        """
        if self.stop.is_set():
            raise Cancelled("the run was stopped")
        if self.deadline is not None and time.monotonic() - sum(self.paused) > self.deadline:
            raise BadInput(
                f"the run took longer than the {seconds_in_words(self.allowed_seconds)} that one may take here, and "
                "was ended; take a shorter recording, or ask for fewer tokens"
            )


def seconds_in_words(seconds: float) -> str:
    """Returns a time as words: `40 s`, `10 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


_current: contextvars.ContextVar[Work | None] = contextvars.ContextVar("work", default=None)


def current_work() -> Work | None:
    """Returns the work of this context; None if no visitor has been set."""
    return _current.get()


def current_visitor() -> Visitor:
    """Returns the visitor that this context works for."""
    work = _current.get()
    return work.visitor if work is not None else NOBODY


def current_stop() -> threading.Event:
    """Returns the event that ends the work of this context; a new event if no visitor has been set."""
    work = _current.get()
    return work.stop if work is not None else threading.Event()


def told(error: WorkbenchError) -> str:
    """Returns the sentence of an error as the visitor of this context may read it."""
    work = _current.get()
    return str(error if work is None or work.tell is None else work.tell(error))


def check_work() -> None:
    """Raises what `Work.check` raises for the work of this context."""
    work = _current.get()
    if work is not None:
        work.check()


@contextlib.contextmanager
def visited_by(visitor: Visitor, tell: Callable[[WorkbenchError], WorkbenchError] | None = None) -> Iterator[Work]:
    """Sets the visitor of the work inside the block, and maybe how errors are told to them."""
    with working(Work(visitor, tell=tell)) as work:
        yield work


@contextlib.contextmanager
def working(work: Work) -> Iterator[Work]:
    """Sets the work of this context inside the block."""
    token = _current.set(work)
    try:
        yield work
    finally:
        _current.reset(token)


@contextlib.contextmanager
def stoppable(stop: threading.Event) -> Iterator[Work]:
    """Makes `stop` also end the current work inside the block."""
    with working(replace(_current.get() or Work(), stop=stop)) as work:
        yield work


def in_current_context(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Returns a function that another thread can call; it works for the visitor of this thread."""
    context = contextvars.copy_context()

    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return context.copy().run(function, *args, **kwargs)

    return run
