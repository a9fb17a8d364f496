"""Whether this process may be forked, and what its forked children give up.

A forked child has a copy of the memory and of the open files, but only the thread that forked. So a process must say
that it may be forked. The processes of sessions do; a page, a notebook or a script does not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)

_allowed = False


def allow_forks(close: Callable[[], None]) -> None:
    """Says that this process may be forked. Its forked children end when it ends, however that happens.

    They also end when the thread that forked them ends (see prctl(2)).

    Args:
        close: runs in each forked child and closes what belongs to this process alone.
    """
    global _allowed
    if sys.platform != "linux":  # elsewhere libraries of the system do not survive a fork
        return
    library, parent = ctypes.CDLL(None), os.getpid()

    def begin() -> None:
        library.prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)
        close()

    os.register_at_fork(after_in_child=begin)
    _allowed = True


def forks_allowed() -> bool:
    """Returns whether this process may be forked."""
    return _allowed
