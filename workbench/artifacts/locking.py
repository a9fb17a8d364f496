"""A lock that allows one conversion of a file at a time, across processes. This file knows no format."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput, Unavailable
from workbench.core.progress import OnProgress
from workbench.system.atomic_files import explained_file_errors
from workbench.system.user_cache import CACHE_VARIABLE

WAIT_SECONDS = 0.25  # between checks whether another conversion is done


@contextlib.contextmanager
def locked(place: Path, name: str, on_progress: OnProgress | None) -> Iterator[None]:
    """Locks a path that will be made, by a file beside it, so that two processes do not both make it.

    Args:
        name: the model's name, for `on_progress` while another process works; `on_progress` may raise to stop waiting.
    """
    from filelock import FileLock

    with _explained_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place.parent / f".{place.name}.lock")
    while not _acquired(lock, place):
        if on_progress is not None:
            on_progress(0.0, f"waiting for another conversion of {name}")
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _explained_errors(place: Path) -> Iterator[None]:
    """Turns an error of the file system into a sentence that also names the variable for another cache."""
    try:
        with explained_file_errors(place):
            yield
    except BadInput as error:
        raise Unavailable(f"{error}; set {CACHE_VARIABLE} to a folder that can be written to") from error


def _acquired(lock: Any, place: Path) -> bool:
    """Returns whether the lock was free within a short time."""
    from filelock import Timeout

    with _explained_errors(place):
        try:
            lock.acquire(timeout=WAIT_SECONDS)
        except Timeout:  # a subclass of OSError
            return False
    return True
