"""Takes the result from a session's stream of events, whatever the events are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from workbench.core.errors import Cancelled

Result = TypeVar("Result")


def last_result(events: Iterator[Any], kind: type[Result], work: str) -> Result:
    """Reads a stream to its end, so that the session is free again, and returns the last event of type `kind`.

    Args:
        work: the name of the work in the error, such as "the transcription".

    Raises `Cancelled` if the stream ends without such an event.
    """
    result = None
    for event in events:
        if isinstance(event, kind):
            result = event
    if result is None:
        raise Cancelled(f"{work} was stopped before it ended")
    return result
