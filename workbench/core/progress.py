"""How far a load is: who loads a model says so, and who had it loaded may listen. This file knows no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OnProgress = Callable[[float, str], None]
"""Called with a fraction 0..1 and what is going on."""

_listener: ContextVar[OnProgress | None] = ContextVar("listener", default=None)


def report(fraction: float, activity: str) -> None:
    """Tells the listener of this thread, if there is one; what it raises ends the work."""
    listener = _listener.get()
    if listener is not None:
        listener(fraction, activity)


@contextmanager
def listening(listener: OnProgress | None) -> Iterator[None]:
    """Within the block, what is loaded in this thread reports to the listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def overhearing(also: OnProgress) -> Iterator[None]:
    """Within the block, `also` is told first of what is reported to the listener."""
    listener = _listener.get()

    def both(fraction: float, activity: str) -> None:
        also(fraction, activity)
        if listener is not None:
            listener(fraction, activity)

    with listening(both):
        yield
