"""Waits of tests for what another thread or process does."""

from __future__ import annotations

import threading
from collections.abc import Callable


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    found = threading.Event()
    for _ in range(int(100 * seconds)):
        if condition():
            return
        found.wait(0.01)
    raise AssertionError("it did not happen")
