"""The active runs on the page, so that users can stop them. This file knows nothing of their work."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class ActiveRuns:
    """The active runs by user session. `stop` ends a user's latest run."""

    def __init__(self) -> None:
        self._runs: dict[str, threading.Event] = {}

    @contextlib.contextmanager
    def run(self, user: str) -> Iterator[threading.Event]:
        """Yields an event that ends the user's run when it is set. It is also set at the end of the block."""
        stop = threading.Event()
        self._runs[user] = stop
        try:
            yield stop
        finally:
            stop.set()
            if self._runs.get(user) is stop:
                del self._runs[user]

    def is_latest(self, user: str, stop: threading.Event) -> bool:
        """Returns whether the user has started no other run since the one of this event."""
        return self._runs.get(user, stop) is stop

    def stop(self, user: str) -> None:
        """Stops the user's run, if there is one."""
        run = self._runs.get(user)
        if run is not None:
            run.set()
