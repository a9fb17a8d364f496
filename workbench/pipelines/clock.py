"""Measures the time that a session works, without the time that a reader spends between two events."""

from __future__ import annotations

import contextlib
import time


class WorkClock(contextlib.AbstractContextManager["WorkClock"]):
    """Sums the time inside its `with` blocks, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start_time: float | None = None

    def __enter__(self) -> WorkClock:
        self._start_time = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self._start_time = self.passed(), None

    def passed(self) -> float:
        """Returns the sum so far, inside a block or outside."""
        return self.seconds + (0.0 if self._start_time is None else time.perf_counter() - self._start_time)
