"""What a thread reports while it works, for a page that shows it as it comes and can stop it at once.

This file knows nothing of what is worked on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

POLL_SECONDS = 0.1  # how soon a stop shows
SHOW_SECONDS = 0.1  # least time between two showings: a model may write hundreds of tokens a second

Change = TypeVar("Change")


def changes(
    work: Callable[[Callable[[Change], None]], None], take: Callable[[Change], None], stop: threading.Event
) -> Iterator[None]:
    """Starts the work in a thread, takes what it reports, and yields whenever there is something new to show, though
    not more often than `SHOW_SECONDS` allow.

    Ends when the work has ended and all is taken, or at once when `stop` is set; the work has to see to its own end.

    Args:
        work: called with the function to report a change with.
        take: called with each change, here.
    """
    reported: queue.SimpleQueue[tuple[Change] | None] = queue.SimpleQueue()

    def whole() -> None:
        try:
            work(lambda change: reported.put((change,)))
        finally:
            reported.put(None)

    threading.Thread(target=whole, daemon=True).start()
    shown = time.perf_counter()
    ended = unseen = False
    while not (ended or stop.is_set()):
        found = _waiting(reported)
        for each in found:
            if each is not None:
                take(each[0])
        ended, unseen = None in found, unseen or bool(found)
        if unseen and not ended and time.perf_counter() - shown >= SHOW_SECONDS:
            yield
            shown, unseen = time.perf_counter(), False


def _waiting(reported: queue.SimpleQueue[tuple[Change] | None]) -> list[tuple[Change] | None]:
    """The changes that have come in, after a short wait for the first."""
    found: list[tuple[Change] | None] = []
    try:
        found.append(reported.get(timeout=POLL_SECONDS))
        while True:
            found.append(reported.get_nowait())
    except queue.Empty:
        return found
