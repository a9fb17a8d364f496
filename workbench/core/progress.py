"""Progress of a load. The code that loads a model reports, and the code that asked for it listens. Knows no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OnProgress = Callable[[float, str], None]
"""A function that receives a fraction from 0 to 1 and a text that names the current activity."""

_listener: ContextVar[OnProgress | None] = ContextVar("listener", default=None)


def report(fraction: float, activity: str) -> None:
    """Calls the listener of this thread, if one is set. An exception from the listener ends the work."""
    listener = _listener.get()
    if listener is not None:
        listener(fraction, activity)


@contextmanager
def listening(listener: OnProgress | None) -> Iterator[None]:
    """Sets the listener for everything that this thread loads inside the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def listening_too(additional_listener: OnProgress) -> Iterator[None]:
    """Calls `additional_listener` before the listener for every report inside the block."""
    listener = _listener.get()

    def report_to_both(fraction: float, activity: str) -> None:
        additional_listener(fraction, activity)
        if listener is not None:
            listener(fraction, activity)

    with listening(report_to_both):
        yield
