"""Passes the reports of a working thread to the page as they come; stops at once on request.

This file knows nothing of the work.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from workbench.core.errors import BadInput
from workbench.core.visitors import in_current_context, stoppable

POLL_SECONDS = 0.1  # delay until a stop takes effect
SHOW_SECONDS = 0.1  # the shortest time between two updates, as a model may write hundreds of tokens a second

Change = TypeVar("Change")
Table = TypeVar("Table")


def named_percent(activity: str) -> int | None:
    """Returns the percentage that ends an activity (`workbench.serving.work.follower` writes it); None without one."""
    found = re.search(r"(\d{1,3}) ?%$", activity)
    return min(int(found[1]), 100) if found else None


class Row(Protocol):
    """A row of a table of results."""

    @property
    def key(self) -> str:
        """The row's name, which no other row of the table has."""
        ...

    @property
    def status(self) -> str:
        """Its state: waiting, running, or one of the final states."""
        ...


Rows = TypeVar("Rows", bound=Row)


@dataclass(frozen=True)
class RunTable(Generic[Rows]):
    """The table of a run's results, and the progress of the run, as `tables` makes it."""

    NOUN: ClassVar[str] = "row"  # what messages call a row

    rows: tuple[Rows, ...] = ()
    finished: bool = False
    stopped: bool = False
    seconds: float = 0.0  # since the start

    def row(self, key: str) -> Rows:
        """Returns the row with that key; raises `BadInput` if there is none."""
        for row in self.rows:
            if row.key == key:
                return row
        raise BadInput(f"that {self.NOUN} belongs to an earlier run; pick one of those shown now")


def tables(
    rows: Iterable[Rows],
    work: Callable[[Callable[[Rows], None]], None],
    stop: threading.Event,
    table: Callable[..., Table],
    given_up: Callable[[Rows], Rows],
) -> Iterator[Table]:
    """Starts the work in a thread; yields the table when a row has changed, like `changes`, and at the end.

    Setting `stop` or closing the iterator ends it at once.

    Args:
        work: called with the function that shows a changed row.
        table: makes a table from the rows, `finished`, `stopped` and `seconds` since the start.
        given_up: returns a row as it is shown if it will not be finished.
    """
    start = time.perf_counter()
    rows_by_key = {row.key: row for row in rows}
    try:
        yield table(tuple(rows_by_key.values()))
        for _ in changes(work, lambda row: rows_by_key.update({row.key: row}), stop):
            yield table(tuple(rows_by_key.values()), seconds=time.perf_counter() - start)
    finally:
        stopped = stop.is_set()
        stop.set()  # a closed iterator ends the work
    last = tuple(given_up(row) if row.status in ("waiting", "running") else row for row in rows_by_key.values())
    yield table(last, finished=True, stopped=stopped, seconds=time.perf_counter() - start)


def changes(
    work: Callable[[Callable[[Change], None]], None], take: Callable[[Change], None], stop: threading.Event
) -> Iterator[None]:
    """Starts the work in a thread, takes its reports, and yields when there is something new to show.

    It yields at most once per `SHOW_SECONDS`. It ends when the work has ended and all is taken, or at once when `stop`
    is set; the work must end itself.

    Args:
        work: called with the function that reports a change.
        take: called with each change, in this thread.
    """
    reported: queue.SimpleQueue[tuple[Change] | None] = queue.SimpleQueue()

    def report_all() -> None:
        try:
            work(lambda change: reported.put((change,)))
        finally:
            reported.put(None)

    with stoppable(stop):
        thread = threading.Thread(target=in_current_context(report_all), daemon=True)
    thread.start()
    last_update = time.perf_counter()
    ended = unseen = False
    while not (ended or stop.is_set()):
        found = _waiting(reported)
        for each in found:
            if each is not None:
                take(each[0])
        ended, unseen = None in found, unseen or bool(found)
        if unseen and not ended and time.perf_counter() - last_update >= SHOW_SECONDS:
            yield
            last_update, unseen = time.perf_counter(), False


def _waiting(reported: queue.SimpleQueue[tuple[Change] | None]) -> list[tuple[Change] | None]:
    """Returns the changes that have arrived, after a short wait for the first."""
    found: list[tuple[Change] | None] = []
    try:
        found.append(reported.get(timeout=POLL_SECONDS))
        while True:
            found.append(reported.get_nowait())
    except queue.Empty:
        return found
