"""The queue of the calls that wait for a model: bounded, fair between visitors, with a place and an estimate for each.

A model that takes one call at a time serves one call, and the others wait. The next visitor is the one for whom the
fewest calls run; among equals, the one who was served longest ago. So a visitor who sends many calls waits behind one
who sends few.

A model computes a long recording segment by segment. After a slice of time, the call of a long recording lets others go
first, between two segments (`Turn.release`): the calls that wait for the same model, and, if more calls work than there
are processors, the short calls at work. If short calls come without a pause, the long ones still get a ninth of the
time.

This file knows no model; `resource` names what only one call can use at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from workbench.core.errors import Busy
from workbench.core.progress import OnProgress, report
from workbench.core.visitors import Visitor, Work, seconds_in_words
from workbench.serving.admission.limits import Limits
from workbench.system.processors import available_processors

SLICE_SECONDS = 0.25  # how long a call works before it lets others go first: a short one ends before
TURNS_OF_OTHERS = 8.0  # after a call gave way, others go first for this many times the time that it held them up
SHORT_SECONDS = 2.0  # a call that has worked this long is a long one
BEAT_SECONDS = 0.25  # how often a waiting call reports its place, and may be stopped
LOOK_SECONDS = 1.0  # how often their place is counted
FIRST_GUESS = 2.0  # seconds that a call takes, until one was measured
WEIGHT = 0.2  # of the latest call in the mean
MAX_KNOWN = 10_000  # visitors and resources that are remembered


@dataclass(eq=False)
class _Entry:
    """A call in the queue."""

    visitor: Visitor
    resource: Hashable
    alone: bool
    number: int
    running: bool = False
    started_at: float = 0.0
    nested: bool = False
    long: bool = False  # whether it can let others go first
    gave_way: bool = False
    holds_up_since: float | None = None  # in its present turn
    woken: threading.Event = field(default_factory=threading.Event)  # set when its turn begins


class Turn:
    """The right of a call to run."""

    def __init__(self, queue: CallQueue, entry: _Entry):
        self._queue = queue
        self._entry = entry

    @property
    def delays_others(self) -> bool:
        """Whether this call delays others and has used its slice of time.

        Only a call that can let others go first may ask.
        """
        return self._queue.delays_others(self._entry)

    def release(self) -> None:
        """Gives the right to run to a waiting call; `reacquire` waits for its return."""
        self._queue.pause(self._entry)

    def reacquire(self, work: Work, on_progress: OnProgress = report) -> None:
        """Waits until it is this call's turn again; raises what `Work.check` raises."""
        self._queue.wait(self._entry, work, on_progress)


@dataclass
class _Counts:
    """Calls by visitor and by address."""

    visitors: Counter[Visitor] = field(default_factory=Counter)
    addresses: Counter[str] = field(default_factory=Counter)

    def add(self, visitor: Visitor, count: int) -> None:
        _count(self.visitors, visitor, count)
        _count(self.addresses, visitor.address, count)


Counted = TypeVar("Counted")


def _count(counts: Counter[Counted], key: Counted, count: int) -> None:
    counts[key] += count
    if not counts[key]:
        del counts[key]  # so that visitors of yesterday are forgotten


class CallQueue:
    """All running and waiting calls of a server.

    Args:
        slice_seconds: how long a call works before it lets others go first.
        processors: how many calls work side by side without holding each other up; by default, the number of
            processors that this process may use.
    """

    def __init__(self, limits: Limits, slice_seconds: float = SLICE_SECONDS, processors: int | None = None):
        self.limits = limits
        self.slice_seconds = slice_seconds
        self.processors = processors or available_processors()
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []  # waiting, in the order of their arrival
        self._working_calls: list[_Entry] = []
        self._at_work: dict[Hashable, Visitor] = {}  # for whom calls run alone, by resource
        self._running, self._waiting = _Counts(), _Counts()
        self._holders: Counter[tuple[int, int]] = Counter()
        self._others_first = 0.0  # until when new calls go before those that gave way
        self._served: OrderedDict[Hashable, int] = OrderedDict()  # by visitor and address, when one was served last
        self._seconds: OrderedDict[Hashable, float] = OrderedDict()  # the mean time of a call
        self._numbers = itertools.count(1)

    @property
    def running(self) -> int:
        """The number of running calls."""
        return len(self._working_calls)

    @property
    def waiting(self) -> int:
        """The number of waiting calls."""
        return len(self._entries)

    @contextlib.contextmanager
    def turn(
        self, work: Work, resource: Hashable, alone: bool = True, on_progress: OnProgress = report
    ) -> Iterator[Turn]:
        """Waits for the turn of a call and holds it for the length of the block.

        Args:
            work: the visitor, and what ends the work.
            resource: what the call needs; if `alone`, only one call has it at a time.
            on_progress: receives the place in the queue and the estimate while the call waits; may raise to leave the
                queue.

        A call inside another one of the same work and thread does not wait, because the other already holds a turn.
        Raises `Busy` if too many wait, and what `Work.check` raises.
        """
        holder = (id(work.stop), threading.get_ident())  # copies of a work share its stop
        entry = _Entry(work.visitor, resource, alone, 0, nested=bool(self._holders[holder]))
        if not entry.nested:
            self._arrive(entry)
            self.wait(entry, work, on_progress)
        with self._lock:
            self._holders[holder] += 1
        try:
            yield Turn(self, entry)
        finally:
            with self._lock:
                self._holders[holder] -= 1
                if not self._holders[holder]:
                    del self._holders[holder]
            self.pause(entry, ended=True)

    def delays_others(self, entry: _Entry) -> bool:
        """Returns whether a call delays others and has used its slice of time.

        The call must be able to let others go first.
        """
        if not entry.running or not entry.alone:
            return False
        now = time.monotonic()
        with self._lock:
            entry.long = True
            if not any(each.resource == entry.resource for each in self._entries) and not self._is_crowded(now):
                return False
            entry.holds_up_since = entry.holds_up_since or now
            return entry.running and now - entry.started_at >= self.slice_seconds

    def pause(self, entry: _Entry, ended: bool = False) -> None:
        """Ends the turn of a call; it waits for the next one unless it has `ended`."""
        with self._lock:
            if entry.running:
                entry.running = False
                self._working_calls.remove(entry)
                self._running.add(entry.visitor, -1)
                if entry.alone:
                    del self._at_work[entry.resource]
                self._learn(entry)
                if entry.holds_up_since is not None:
                    now = time.monotonic()
                    self._others_first = now + TURNS_OF_OTHERS * (now - entry.holds_up_since)
            if not ended and not entry.nested:
                entry.gave_way = True
                self._enqueue(entry)
            elif entry in self._entries:
                self._dequeue(entry)
            self._wake()

    def wait(self, entry: _Entry, work: Work, on_progress: OnProgress = report) -> None:
        """Returns when it is the turn of a call that is in the queue."""
        if entry.nested:
            return
        activity, counted_at = "", 0.0
        try:
            work.check()
            while not entry.woken.wait(BEAT_SECONDS):
                work.check()
                if time.monotonic() - counted_at >= LOOK_SECONDS:
                    with self._lock:
                        activity, counted_at = self._waiting_message(entry), time.monotonic()
                if entry.gave_way:  # others may no longer go first: time passes without a change in the queue
                    with self._lock:
                        self._wake()
                on_progress(0.0, activity)
        except BaseException:
            self.pause(entry, ended=True)
            raise

    def _arrive(self, entry: _Entry) -> None:
        limits, visitor = self.limits, entry.visitor
        with self._lock:
            shares = (
                (self._waiting.visitors[visitor], 1),
                (self._waiting.addresses[visitor.address], limits.per_address),
            )
            if any(count >= limits.waiting_per_visitor * share for count, share in shares):
                raise Busy(
                    f"{limits.waiting_per_visitor} of your calls wait already, and more are not taken; send this one "
                    "when some have ended",
                    self._estimate(entry),
                )
            if len(self._entries) >= limits.waiting:
                raise Busy(
                    f"{len(self._entries)} calls wait on this server, and more are not taken; try again in about "
                    f"{seconds_in_words(self._estimate(entry))}",
                    self._estimate(entry),
                )
            self._enqueue(entry)
            self._wake()

    def _enqueue(self, entry: _Entry) -> None:
        entry.woken.clear()
        entry.number = next(self._numbers)
        self._entries.append(entry)
        self._waiting.add(entry.visitor, 1)

    def _dequeue(self, entry: _Entry) -> None:
        self._entries.remove(entry)
        self._waiting.add(entry.visitor, -1)

    def _wake(self) -> None:
        """Begins the turns of all calls that may go now. A waiting thread wakes only for its own turn."""
        while (entry := self._next()) is not None:
            self._begin(entry)
            entry.woken.set()

    def _begin(self, entry: _Entry) -> None:
        self._dequeue(entry)
        entry.running, entry.started_at, entry.holds_up_since = True, time.monotonic(), None
        self._working_calls.append(entry)
        self._running.add(entry.visitor, 1)
        if entry.alone:
            self._at_work[entry.resource] = entry.visitor
        now = next(self._numbers)
        for key in (entry.visitor, entry.visitor.address):
            self._served[key] = now
            self._served.move_to_end(key)
        while len(self._served) > MAX_KNOWN:
            self._served.popitem(last=False)

    def _next(self) -> _Entry | None:
        """Returns the waiting call that may run now, if there is one."""
        if self.running >= self.limits.running:
            return None
        ready_entries = [each for each in self._entries if self._may_go(each)]
        return min(ready_entries, key=self._rank, default=None)

    def _may_go(self, entry: _Entry) -> bool:
        limits, visitor = self.limits, entry.visitor
        return (
            not (entry.alone and entry.resource in self._at_work)
            and (not entry.gave_way or self._has_room_for_long())
            and self._running.visitors[visitor] < limits.running_per_visitor
            and self._running.addresses[visitor.address] < limits.running_per_visitor * limits.per_address
        )

    def _is_crowded(self, now: float) -> bool:
        """Returns whether more calls run than there are processors, and some of them are short."""
        return len(self._working_calls) > self.processors and self._long_working(now) < len(self._working_calls)

    def _has_room_for_long(self) -> bool:
        """Whether a call that gave way may go on: if a processor is idle, if only long calls work, or if its share is
        due.
        """
        now = time.monotonic()
        long = self._long_working(now)
        return (
            len(self._working_calls) < self.processors
            or long == len(self._working_calls)
            or (long < max(1, self.processors // 2) and now >= self._others_first)
        )

    def _long_working(self, now: float) -> int:
        return sum(each.long or now - each.started_at >= SHORT_SECONDS for each in self._working_calls)

    def _rank(self, entry: _Entry) -> tuple[int, ...]:
        visitor = entry.visitor
        return (
            entry.gave_way and time.monotonic() < self._others_first,
            self._running.addresses[visitor.address],
            self._running.visitors[visitor],
            self._served.get(visitor.address, 0),
            self._served.get(visitor, 0),
            entry.number,
        )

    def _before(self, entry: _Entry) -> int:
        """Returns the number of calls before this one in the queue that need the same resource."""
        rank = self._rank(entry)
        return sum(each.resource == entry.resource and self._rank(each) < rank for each in self._entries)

    def _estimate(self, entry: _Entry) -> float:
        mean = self._seconds.get(entry.resource, FIRST_GUESS)
        return mean * (1 + self._before(entry)) if entry.alone else mean

    def _waiting_message(self, entry: _Entry) -> str:
        """Returns a sentence: what a call waits for, its position in the queue, and an estimate of the time."""
        place, remaining = 1 + self._before(entry), seconds_in_words(max(self._estimate(entry), 1.0))
        worker = self._at_work.get(entry.resource)
        other_run = (
            "other runs" if worker is None else "your other run" if worker == entry.visitor else "another visitor's run"
        )
        return f"waiting for {other_run} (position {place}, about {remaining})"

    def _learn(self, entry: _Entry) -> None:
        seconds = time.monotonic() - entry.started_at
        mean = self._seconds.get(entry.resource, seconds)
        self._seconds[entry.resource] = mean + WEIGHT * (seconds - mean)
        self._seconds.move_to_end(entry.resource)
        while len(self._seconds) > MAX_KNOWN:
            self._seconds.popitem(last=False)
