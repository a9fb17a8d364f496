"""Hides what a native library prints on the terminal: mpg123 writes to stderr about every frame that it rejects."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

_STDERR = 2  # the descriptor that native code writes to, whatever Python's sys.stderr is
_lock = threading.Lock()
_inside = 0  # number of threads inside a muted block
_saved: int | None = None  # a copy of stderr's descriptor while it is muted


@contextlib.contextmanager
def muted_stderr(muted: bool = True) -> Iterator[None]:
    """Mutes the process's stderr inside the block if `muted`. This mutes all threads, so the block has to be short."""
    global _inside, _saved
    if not muted:
        yield
        return
    with _lock:
        _inside += 1
        if _inside == 1:
            _saved = _swapped()
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _saved is not None:
                os.dup2(_saved, _STDERR)
                os.close(_saved)
                _saved = None


def _swapped() -> int | None:
    """Redirects stderr to the null device and returns a copy of its descriptor; None for a process without stderr."""
    with contextlib.suppress(OSError):
        saved = os.dup(_STDERR)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDERR)
        os.close(nowhere)
        return saved
    return None
