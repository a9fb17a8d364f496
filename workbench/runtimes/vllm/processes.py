"""Finds the processes of an engine, and makes sure that none is left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from workbench.system.process_groups import is_tracker

END_SECONDS = 5.0  # for killed processes to disappear


class Processes:
    """The processes that started under this process within a `watched` block."""

    def __init__(self) -> None:
        self._known: list[psutil.Process] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Counts every process that starts within the block as the engine's."""
        before = set(_descendants())
        try:
            yield
        finally:
            self._known = [process for process in _descendants() if process not in before]

    @property
    def alive(self) -> tuple[int, ...]:
        """Returns the ids of the processes that run."""
        return tuple(process.pid for process in self._known if _runs(process))

    def end(self) -> None:
        """Kills those that still run and waits for their end."""
        for process in self._known:
            if _runs(process):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        psutil.wait_procs(self._known, timeout=END_SECONDS)
        self._known = []


def _descendants() -> list[psutil.Process]:
    return [each for each in psutil.Process().children(recursive=True) if _runs(each) and not is_tracker(each.pid)]


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
