"""Finds the processes of an engine, says how they ended, and makes sure that none is left."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import psutil

from workbench.runtimes.vllm.engine.log import raised_in
from workbench.system.process_groups import is_tracker

END_SECONDS = 5.0  # for processes to disappear that were killed, or that close their pipe and end


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


def how_it_ended(processes: Iterable[BaseProcess], output: str) -> str:
    """Returns how an engine ended, as the end of a sentence.

    Args:
        processes: the engine's processes; at least one of them has ended or is about to end.
        output: what the engine wrote to its log.
    """
    for process in processes:
        process.join(END_SECONDS)  # its pipe closes a moment before the process ends
        if process.exitcode is not None and process.exitcode < 0:
            name = signal.Signals(-process.exitcode).name
            memory = ", as happens when memory runs out" if name == "SIGKILL" else ""
            return f"was ended by {name} at work{memory}"
    reason = raised_in(output)
    return f"ended at work: {reason}" if reason else "ended at work"


def _descendants() -> list[psutil.Process]:
    return [each for each in psutil.Process().children(recursive=True) if _runs(each) and not is_tracker(each.pid)]


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
