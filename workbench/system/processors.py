"""Chooses the number of threads of a computation."""

from __future__ import annotations

import os

# Weights of a model that computes in one thread. Its operations take less time than threads need to wait for each
# other: on a busy machine two threads mostly took six to thirty times as long as one, and alone they were no faster.
SMALL_BYTES = 64 << 20


def available_processors() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads(weight_bytes: int) -> int:
    """Returns the default number of threads for a model with `weight_bytes` bytes of weights."""
    return 1 if weight_bytes <= SMALL_BYTES else available_processors()
