"""One conversion at a time of one thing, however many processes want it. This file knows no format."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.core.progress import OnProgress
from workbench.system.atomic_files import told

WAIT_SECONDS = 0.25  # between looks at whether another conversion is done


@contextlib.contextmanager
def locked(place: Path, name: str, on_progress: OnProgress | None) -> Iterator[None]:
    """Holds a place that is to be made, by a file beside it, so that two that want the same do not both make it.

    Args:
        name: of the model, for what `on_progress` is told while another one is at it; it may raise to stop waiting.
    """
    from filelock import FileLock

    with told(place):
        place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place.parent / f".{place.name}.lock")
    while not _acquired(lock, place):
        if on_progress is not None:
            on_progress(0.0, f"waiting for another conversion of {name}")
    try:
        yield
    finally:
        lock.release()


def _acquired(lock: Any, place: Path) -> bool:
    """Whether the lock could be had within a short while."""
    from filelock import Timeout

    with told(place):
        try:
            lock.acquire(timeout=WAIT_SECONDS)
        except Timeout:  # an OSError too
            return False
    return True
