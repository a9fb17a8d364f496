"""Decides whether this process may be forked, and what its forked children close.

A forked child has a copy of the memory and of the open files, but only the thread that forked. So a process must say
that it may be forked. The processes of sessions do; a page, a notebook or a script does not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)

_allowed = False


def allow_forks(close: Callable[[], None]) -> None:
    """Declares that this process may be forked. Its forked children end when it ends, however that happens.

    They also end when the thread that forked them ends (see prctl(2)).

    Args:
        close: runs in each forked child and closes what belongs to this process alone.
    """
    global _allowed
    if sys.platform != "linux":  # elsewhere libraries of the system do not survive a fork
        return
    parent = os.getpid()

    def begin() -> None:
        end_with(parent)
        close()

    os.register_at_fork(after_in_child=begin)
    _allowed = True


def forks_allowed() -> bool:
    """Returns whether this process may be forked."""
    return _allowed


def end_with(parent: int) -> None:
    """Makes this process end when its parent ends, or at once if the parent has ended already. Only on Linux."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def why_not_forkable() -> str | None:
    """Returns why a fork of this process would not be safe now; None if it would be safe.

    A lock that another thread holds stays locked forever in a forked child, and CUDA does not survive a fork.
    """
    if sys.platform != "linux":
        return "only Linux forks safely"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return "this Linux does not report the end of a process (pidfd_open)"
    threads = _threads_left_by_a_fork()
    if threads > 1:
        return f"{threads - 1} more threads run"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialised"
    return None


def _threads_left_by_a_fork() -> int:
    """Returns how many threads this process has after a fork.

    OpenBLAS, which numpy loads, ends its threads before a fork and starts new ones when it computes.
    """
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(list(Path("/proc/self/task").iterdir()))
