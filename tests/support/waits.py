"""Waits of tests for what another thread or process does."""

from __future__ import annotations

import threading
from collections.abc import Callable


def until(condition: Callable[[], bool]) -> None:
    found = threading.Event()
    for _ in range(2000):
        if condition():
            return
        found.wait(0.01)
    raise AssertionError("it did not happen")
