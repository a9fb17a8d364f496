"""Coroutines in tests: where a test of the page ran before, the main thread has an event loop that runs for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Returns what the coroutine returns, or raises what it raises, in an event loop of another thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
