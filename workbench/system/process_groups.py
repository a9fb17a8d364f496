"""Ends process groups: a session's process and whatever that has started, as a whole."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence

GROUP_SECONDS = 10.0  # how long killed processes may take to be gone; the system is freeing their memory
TRACKER_SECONDS = 1.0  # how long a tracker may take to give back what it keeps track of
CHECK_SECONDS = 0.01
TRACKER = "multiprocessing.resource_tracker"


def end_group(group: int) -> set[int]:
    """Kills every process of a group, and waits, for a while, until they are gone; returns which were killed.

    Python's trackers of shared memory come last: when nobody is left they remove the files of those that were killed
    before they could, and end by themselves.
    """
    killed = end_others(group)
    deadline = time.monotonic() + TRACKER_SECONDS
    while _exists(group) and _members(group) and time.monotonic() < deadline:
        time.sleep(CHECK_SECONDS)
    return killed | _kill_until_gone(group, sparing_trackers=False)


def end_others(group: int) -> set[int]:
    """Kills the processes of a group but the calling one and Python's trackers, which see to the rest by themselves.

    Waits, for a while, until they are gone; returns which were killed.
    """
    return _kill_until_gone(group, sparing_trackers=True)


def _kill_until_gone(group: int, sparing_trackers: bool) -> set[int]:
    killed = set[int]()
    deadline = time.monotonic() + GROUP_SECONDS
    while _exists(group) and time.monotonic() < deadline:
        left = [pid for pid in _members(group) if not (sparing_trackers and is_tracker(pid))]
        if not left:
            break
        killed.update(left)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(CHECK_SECONDS)
    return killed


def _exists(group: int) -> bool:
    """Whether the group has any process, those included that are dead and that nobody has taken note of."""
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _members(group: int) -> Sequence[int]:
    """The living processes of the group, the calling one left out."""
    import psutil

    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            ours = pid not in (0, os.getpid()) and os.getpgid(pid) == group
            if ours and psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                found.append(pid)
    return found


def is_tracker(pid: int) -> bool:
    """Whether a process is Python's tracker of shared memory, which lives as long as whoever started it."""
    import psutil

    try:
        return any(TRACKER in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
