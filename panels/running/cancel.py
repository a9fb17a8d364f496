"""The runs under way on the page, each of which its user can stop. Knows nothing of what runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Stops:
    """Runs by the user's session; a user's latest is the one that is stopped."""

    def __init__(self) -> None:
        self._runs: dict[str, threading.Event] = {}

    @contextlib.contextmanager
    def run(self, user: str) -> Iterator[threading.Event]:
        """The event whose setting ends a run of the user's. It is set when the block ends, too."""
        stop = threading.Event()
        self._runs[user] = stop
        try:
            yield stop
        finally:
            stop.set()
            if self._runs.get(user) is stop:
                del self._runs[user]

    def stop(self, user: str) -> None:
        """Stops the user's run, if there is one."""
        run = self._runs.get(user)
        if run is not None:
            run.set()
