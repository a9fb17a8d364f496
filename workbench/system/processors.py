"""Chooses the number of threads of a computation, and how they wait for each other."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from workbench.core.errors import BadInput

# Weights of a model that computes in one thread. Its operations take less time than threads need to wait for each
# other: on a busy machine two threads mostly took six to thirty times as long as one, and alone they were no faster.
SMALL_BYTES = 64 << 20
WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # variables of GNU's OpenMP, whose threads PyTorch and ggml use
SPINS = "5000"
DYNAMIC = "OMP_DYNAMIC"  # "true": OpenMP chooses the number of threads by the load of the machine
LEVELS = "OMP_MAX_ACTIVE_LEVELS"  # "0": one thread always
THREADS = "OMP_NUM_THREADS"
LIMIT = "OMP_THREAD_LIMIT"
CONTROL_GROUP = Path("/sys/fs/cgroup")  # of the container


def available_processors() -> int:
    """Returns the number of processors that this process may use, at most `$OMP_THREAD_LIMIT`.

    A container may have a share of the processors' time (Docker's `--cpus`), although it sees all processors. More
    threads use up that share sooner, and then all of them stand still.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, _container_processors() or count, _thread_limit() or count)


def _container_processors() -> int | None:
    """Returns how many processors' time the container has, rounded up; None without a limit."""
    old = CONTROL_GROUP / "cpu"
    for files in ([CONTROL_GROUP / "cpu.max"], [old / "cpu.cfs_quota_us", old / "cpu.cfs_period_us"]):
        try:
            quota, period = (int(each) for file in files for each in file.read_text().split())
        except (OSError, ValueError):  # there is no such file, or it says "max"
            continue
        if quota > 0 and period > 0:
            return math.ceil(quota / period)
    return None


def _thread_limit() -> int | None:
    limit = os.environ.get(LIMIT, "").strip()
    return int(limit) if limit.isdecimal() and int(limit) > 0 else None  # OpenMP ignores other values


def check_thread_limit(threads: int | None) -> None:
    """Raises `BadInput` if `$OMP_THREAD_LIMIT` allows fewer threads than that."""
    limit = _thread_limit()
    if threads is not None and limit is not None and threads > limit:
        raise BadInput(
            f"threads is {threads}, and {LIMIT} in the environment is {limit}; expected at most {limit}, "
            "or no such limit"
        )


def may_lack_threads(threads: int) -> bool:
    """Returns whether OpenMP may start fewer than the `threads` threads that a computation of this process asks for.

    oneDNN's products then hold wrong values, and it reports no error.
    """
    limit = _thread_limit()
    is_dynamic = os.environ.get(DYNAMIC, "false").strip().lower() != "false"
    return threads > 1 and (is_dynamic or _is_serial(os.environ) or (limit is not None and threads > limit))


def start_all_threads(environment: MutableMapping[str, str]) -> None:
    """Makes OpenMP start all threads that a computation asks for, in processes that start with this environment.

    `$OMP_THREAD_LIMIT` stays; the default number of threads is at most that. `check_thread_limit` checks other numbers.
    """
    environment.pop(DYNAMIC, None)
    if _is_serial(environment):
        del environment[LEVELS]
    limit = _thread_limit()
    number = environment.get(THREADS, "").split(",")[0].strip()  # the first of a list is for the outermost level
    if limit is not None and not (number.isdecimal() and 0 < int(number) <= limit):
        environment[THREADS] = str(available_processors())


def _is_serial(environment: Mapping[str, str]) -> bool:
    return environment.get(LEVELS, "").strip() == "0"


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
