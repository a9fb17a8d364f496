"""A run of a model that another thread may stop: opens its session and waits.

The run has a thread of its own. This file knows no route and no page.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from workbench.core.errors import Cancelled
from workbench.core.progress import OnProgress
from workbench.registry.handle import OpenSession
from workbench.serving.offers import ModelOnRuntime
from workbench.serving.sessions import SessionPool


def opened(
    pool: SessionPool,
    cell: ModelOnRuntime,
    stop: threading.Event,
    on_activity: Callable[[str], None],
    settings: Mapping[str, Any] | None = None,
) -> OpenSession:
    """Returns the session of a cell; reports its load to `on_activity`. When `stop` is set, the wait ends."""

    return pool.session(cell.model, cell.runtime, cell.quantization, follower(stop, on_activity), settings)


def follower(stop: threading.Event, on_activity: Callable[[str], None]) -> OnProgress:
    """Returns a progress function that calls `on_activity` while a run waits.

    A run waits for another run of its model, for the load, or for memory. The function raises `Cancelled`
    when `stop` is set.
    """

    def report(done: float, activity: str) -> None:
        if stop.is_set():
            raise Cancelled("the run was stopped")
        on_activity(activity + (f", {done:.0%}" if done and "%" not in activity else ""))

    return report
