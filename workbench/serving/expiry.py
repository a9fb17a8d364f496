"""Removes files that are kept for a set time, while a server runs: also when nobody uses the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

EXPIRY_SECONDS = 600.0  # between two removals


@contextlib.asynccontextmanager
async def removing_expired(*removals: Callable[[], None]) -> AsyncIterator[None]:
    """Calls each function at the start of the block, and every ten minutes within it, in a thread."""

    async def remove_repeatedly() -> None:
        while True:
            for remove in removals:
                await asyncio.to_thread(remove)
            await asyncio.sleep(EXPIRY_SECONDS)

    task = asyncio.create_task(remove_repeatedly())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
