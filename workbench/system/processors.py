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

    By default each keeps its processor busy for milliseconds, and on a machine with other work, the thread that it
    waits for gets none: of two large models that compute at the same time on two processors, each takes four to five
    times as long. After `SPINS` turns, some 50 to 200 microseconds, the threads sleep. A model that has the machine for
    itself takes about 10 % longer. Nothing changes if the environment has one of these variables already.
    """
    if not any(name in environment for name in WAITING):
        environment["GOMP_SPINCOUNT"] = SPINS
