"""What a thread reports while it works, for a page that shows it as it comes and can stop it at once.

This file knows nothing of what is worked on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

POLL_SECONDS = 0.1  # how soon a stop shows
SHOW_SECONDS = 0.1  # least time between two showings: a model may write hundreds of tokens a second

Change = TypeVar("Change")
Table = TypeVar("Table")


class Row(Protocol):
    """A line of a table of results."""

    @property
    def key(self) -> str:
        """Names it."""
        ...

    @property
    def status(self) -> str:
        """How far it is: waiting, running, or settled in some way."""
        ...


Rows = TypeVar("Rows", bound=Row)


def tables(
    rows: Iterable[Rows],
    work: Callable[[Callable[[Rows], None]], None],
    stop: threading.Event,
    table: Callable[..., Table],
    given_up: Callable[[Rows], Rows],
) -> Iterator[Table]:
    """Starts the work in a thread and yields the table whenever a row has changed, as `changes` does, and last as it
    stays. Setting `stop` ends that at once, and so does closing the iterator.

    Args:
        work: called with the function to show a changed row with.
        table: makes one of the rows, and of `finished`, `stopped` and `seconds` since the start.
        given_up: a row that will not be settled any more.
    """
    begun = time.perf_counter()
    held = {row.key: row for row in rows}
    try:
        yield table(tuple(held.values()))
        for _ in changes(work, lambda row: held.update({row.key: row}), stop):
            yield table(tuple(held.values()), seconds=time.perf_counter() - begun)
    finally:
        stopped = stop.is_set()
        stop.set()  # whoever closes this iterator wants no more work done
    last = tuple(given_up(row) if row.status in ("waiting", "running") else row for row in held.values())
    yield table(last, finished=True, stopped=stopped, seconds=time.perf_counter() - begun)


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
