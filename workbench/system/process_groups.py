"""Ends process groups: a session's process together with all processes that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence

from workbench.system.memory import descendants

GROUP_SECONDS = 10.0  # longest wait for killed processes to disappear, while the system frees their memory
TRACKER_SECONDS = 1.0  # longest wait for a tracker to free the shared memory that it tracks
CHECK_SECONDS = 0.01
TRACKER = "multiprocessing.resource_tracker"


def end_group(group: int) -> set[int]:
    """Kills every process of a group, waits until they are gone (10 s at most), and returns the killed process ids.

    Python's trackers of shared memory end last. When all others are gone, a tracker removes the files that the killed
    processes left behind, and then ends by itself.
    """
    killed = end_others(group)
    deadline = time.monotonic() + TRACKER_SECONDS
    while _exists(group) and _members(group) and time.monotonic() < deadline:
        time.sleep(CHECK_SECONDS)
    return killed | _kill_until_gone(group, sparing_trackers=False)


def end_others(group: int) -> set[int]:
    """Kills the processes of a group except the calling one and Python's trackers, which end by themselves.

    Waits until they are gone (10 s at most) and returns the killed process ids.
    """
    return _kill_until_gone(group, sparing_trackers=True)


def _kill_until_gone(group: int, sparing_trackers: bool) -> set[int]:
    killed = set[int]()
    deadline = time.monotonic() + GROUP_SECONDS
    while _exists(group) and time.monotonic() < deadline:
        living = [pid for pid in _members(group) if not (sparing_trackers and is_tracker(pid))]
        if not living:
            break
        killed.update(living)
        for pid in living:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(CHECK_SECONDS)
    return killed


def _exists(group: int) -> bool:
    """Returns whether the group has any process, including dead ones that no parent has waited for."""
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _members(group: int) -> Sequence[int]:
    """Returns the living processes of the group without the calling one."""
    import psutil

    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            is_member = pid not in (0, os.getpid()) and os.getpgid(pid) == group
            if is_member and psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                found.append(pid)
    return found


def is_stopped(pid: int) -> bool:
    """Returns whether a process, or one that it has started, was stopped (SIGSTOP) and waits to be continued."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return any(psutil.Process(each).status() == psutil.STATUS_STOPPED for each in (pid, *descendants(pid)))
    return False


def is_tracker(pid: int) -> bool:
    """Returns whether a process is Python's tracker of shared memory, which lives as long as its parent."""
    import psutil

    try:
        return any(TRACKER in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
