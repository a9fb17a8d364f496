"""Keeps what a native library prints off the terminal: mpg123 tells stderr of every frame that it does not like."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

_STDERR = 2  # the descriptor that native code writes to, whatever Python's sys.stderr is
_lock = threading.Lock()
_inside = 0  # how many threads want it muted
_kept: int | None = None  # the descriptor's own file meanwhile


@contextlib.contextmanager
def muted_stderr(wanted: bool = True) -> Iterator[None]:
    """Mutes the process's stderr for the block, where `wanted`. All threads are muted, so the block has to be short."""
    global _inside, _kept
    if not wanted:
        yield
        return
    with _lock:
        _inside += 1
        if _inside == 1:
            _kept = _swapped()
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _kept is not None:
                os.dup2(_kept, _STDERR)
                os.close(_kept)
                _kept = None


def _swapped() -> int | None:
    """A copy of stderr's descriptor, which now leads nowhere; None for a process without one."""
    with contextlib.suppress(OSError):
        kept = os.dup(_STDERR)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDERR)
        os.close(nowhere)
        return kept
    return None
