"""Chooses the number of threads of a computation, and how they wait for each other."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

# Weights of a model that computes in one thread. Its operations take less time than threads need to wait for each
# other: on a busy machine two threads mostly took six to thirty times as long as one, and alone they were no faster.
SMALL_BYTES = 64 << 20
WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # variables of GNU's OpenMP, whose threads PyTorch and ggml use
SPINS = "5000"


def available_processors() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads(weight_bytes: int) -> int:
    """Returns the default number of threads for a model with `weight_bytes` bytes of weights."""
    return 1 if weight_bytes <= SMALL_BYTES else available_processors()


def share_processors(environment: MutableMapping[str, str]) -> None:
    """Makes the threads of processes that start with this environment sleep while they wait for each other.

    By default, a waiting thread keeps its processor busy for milliseconds. On a machine with other work, the thread
    that it waits for then has no processor: two large models that compute at the same time on two processors each take
    four to five times as long. This function makes a waiting thread sleep after `SPINS` turns of its loop, which take
    50 to 200 microseconds. A model that has the machine for itself takes about 10 % longer with it. An environment that
    has one of the variables in `WAITING` already stays as it is.
    """
    if not any(name in environment for name in WAITING):
        environment["GOMP_SPINCOUNT"] = SPINS
