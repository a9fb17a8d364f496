"""The end of a program: a clean end on SIGTERM, and the removal of files that killed programs left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from workbench.system.tempdirs import OWNER, PREFIX, start_mark

_ended = threading.Event()
_POLL_SECONDS = 0.2  # the longest time for which `polled_signals` leaves a signal unseen


class Ended(KeyboardInterrupt):
    """Raised in the main thread on SIGTERM, so that open files are closed and temporary files removed, as on Ctrl-C."""


def end_in_order() -> None:
    """Makes SIGTERM end this program as Ctrl-C does. Only the main thread may call it; elsewhere nothing happens."""
    if threading.current_thread() is threading.main_thread():
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one does not disturb the cleaning up
    note_signal(number)
    raise Ended


def note_signal(number: int) -> None:
    """Remembers SIGTERM for `is_ended`; for handlers that do not raise `Ended` at once."""
    if number == signal.SIGTERM:
        _ended.set()


def is_ended() -> bool:
    """Returns whether SIGTERM has asked this program to end."""
    return _ended.is_set()


@contextlib.contextmanager
def polled_signals() -> Iterator[None]:
    """Lets Python handle signals several times a second in a block that waits in C, such as for a line from `input`.

    A signal interrupts such a wait only if it reaches the waiting thread while it waits. One that comes just before, or
    in another thread, is noted, and handled after the wait. Only the main thread may enter the block.
    """
    previous = signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, _POLL_SECONDS, _POLL_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # first: without a handler, an alarm would end the process
        signal.signal(signal.SIGALRM, previous)


def stopped_status() -> int:
    """Returns the exit status that shells use for a program that SIGTERM or Ctrl-C stopped."""
    return 128 + (signal.SIGTERM if is_ended() else signal.SIGINT)


def remove_leftovers() -> list[Path]:
    """Removes the temporary folders of workbench processes that have died; returns them.

    A folder's name says which process it belongs to. Folders of running processes and of other users stay.
    """
    removed = []
    for place in {Path(tempfile.gettempdir()), Path("/tmp")}:
        with contextlib.suppress(OSError):
            for folder in place.glob(f"{PREFIX}*"):
                if _is_abandoned(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    removed.append(folder)
    return removed


def _is_abandoned(folder: Path) -> bool:
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        pid, mark = (folder / OWNER).read_text().split()
    except (OSError, ValueError, AttributeError):
        return False
    return start_mark(int(pid)) != mark if pid.isdecimal() else False
