"""The active runs on the page, so that users can stop them. This file knows nothing of their work."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class _RunsOfUser:
    """The active runs of a user: their number, and the event that ends the latest."""

    active: int = 0
    latest: threading.Event = field(default_factory=threading.Event)


class ActiveRuns:
    """The active runs by user session. `stop` ends a user's latest run."""

    def __init__(self) -> None:
        self._runs: dict[str, _RunsOfUser] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def run(self, user: str) -> Iterator[threading.Event]:
        """Yields an event that ends the user's run when it is set. It is also set at the end of the block."""
        stop = threading.Event()
        with self._lock:
            runs = self._runs.setdefault(user, _RunsOfUser())
            runs.active, runs.latest = runs.active + 1, stop
        try:
            yield stop
        finally:
            stop.set()
            with self._lock:
                runs.active -= 1
                if not runs.active:
                    del self._runs[user]

    def is_latest(self, user: str, stop: threading.Event) -> bool:
        """Returns whether the user has started no other run since the active one of this event."""
        return self._runs[user].latest is stop

    def stop(self, user: str) -> None:
        """Stops the user's latest run, if there is one."""
        runs = self._runs.get(user)
        if runs is not None:
            runs.latest.set()
