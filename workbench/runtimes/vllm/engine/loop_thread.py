"""An asyncio loop in a thread of its own, for code of other threads that waits for coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """A running loop; the methods may be called from any other thread."""

    def __init__(self, name: str):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Runs a coroutine in the loop; returns its future result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def stop(self, patience: float) -> bool:
        """Stops the loop, whatever runs in it; returns whether its thread has ended after up to `patience` seconds."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(patience)
        return not self._thread.is_alive()
