"""A run of a model that somebody else may stop: how it opens its session, and how it waits.

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
    tell: Callable[[str], None],
    settings: Mapping[str, Any] | None = None,
) -> OpenSession:
    """Returns the session of a cell; calls `tell` with the progress of its load. Setting `stop` ends the wait."""

    return pool.session(cell.model, cell.runtime, cell.quantization, follower(stop, tell), settings)


def follower(stop: threading.Event, tell: Callable[[str], None]) -> OnProgress:
    """Returns a progress function that calls `tell` while a run waits: for another run of its model, the load, memory.

    It raises `Cancelled` when `stop` is set.
    """

    def report(done: float, activity: str) -> None:
        if stop.is_set():
            raise Cancelled("the run was stopped")
        tell(activity + (f", {done:.0%}" if done and "%" not in activity else ""))

    return report
