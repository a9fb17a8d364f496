"""Memory use of processes and of this machine in bytes, and byte counts as readable text."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

from workbench.system.processors import CONTROL_GROUP

PROCESSES = Path("/proc")  # where Linux describes processes
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # parameters of glibc's `mallopt`
LARGE_BLOCK = 64 << 10  # bytes


def peak_resident_bytes() -> int:
    """Returns the peak resident memory of this process in bytes, memory-mapped weights included.

    Adds the peak of each process that it has started and that still runs, such as those of a vLLM engine. Memory that
    several processes share counts in each of them.
    """
    own_bytes = _peak_bytes("self")
    if own_bytes is None:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        own_bytes = peak if sys.platform == "darwin" else peak * 1024
    return own_bytes + sum(_peak_bytes(str(pid)) or _process_bytes(pid) for pid in descendants(os.getpid()))


def resident_bytes(pid: int) -> int:
    """Returns the current resident memory of the process and of those that it has started; 0 if it is gone.

    If it has started any, each process counts its proportional share of shared memory, so that it counts once.
    """
    children = descendants(pid)
    if not children:
        return _process_bytes(pid)
    return sum(share_bytes(each) for each in (pid, *children))


def _process_bytes(pid: int) -> int:
    """Returns the resident memory of one process, shared memory included; 0 if it is gone."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def share_bytes(pid: int) -> int:
    """Returns the resident memory of one process with its proportional part of shared memory (Linux's PSS)."""
    kilobytes = _field(PROCESSES / str(pid) / "smaps_rollup", "Pss")
    return _process_bytes(pid) if kilobytes is None else kilobytes * 1024


def _peak_bytes(pid: str) -> int | None:
    """Returns the peak resident memory of one process; None if Linux does not report it."""
    # Not getrusage: there, a program's peak starts at the resident memory of its parent.
    kilobytes = _field(PROCESSES / pid / "status", "VmHWM")
    return None if kilobytes is None else kilobytes * 1024


def _field(file: Path, name: str) -> int | None:
    """Returns the number after a name in a file of Linux's /proc; None if it cannot be read."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in file.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return None


def limit_data(pid: int, extra_bytes: int) -> bool:
    """Limits a process's own memory to `extra_bytes` beyond its present use; returns False if that is impossible.

    The next allocation beyond fails inside the process, which then says that there is not enough memory, while other
    programs of the machine go on. Memory that is mapped from files is not counted. Only on Linux.
    """
    used_kilobytes = _field(PROCESSES / str(pid) / "status", "VmData")
    if used_kilobytes is None or sys.platform != "linux":
        return False
    import resource

    with contextlib.suppress(OSError, ValueError):  # it has ended, or has a lower limit already
        resource.prlimit(pid, resource.RLIMIT_DATA, (used_kilobytes * 1024 + extra_bytes,) * 2)
        return True
    return False


def take_buffers() -> None:
    """Makes numpy allocate the buffers of its matrix products now, before this process has a limit.

    OpenBLAS takes 32 MB at its first product, and asks for them again forever if it gets none.
    """
    import numpy as np

    square = np.ones((256, 256), np.float32)
    np.matmul(square, square)


def use_one_heap() -> None:
    """Makes glibc allocate for all threads in one heap; call this before the process starts threads.

    By default each thread has a heap of its own. A heap gives back only what is free at its end, so that several keep
    more memory than one.
    """
    _set_malloc(ARENA_MAX, 1)


def map_large_blocks() -> None:
    """Makes glibc take each block of 64 KB or more from the system, and give it back as soon as it is freed.

    By default glibc raises that size to that of the largest freed block, up to 32 MB, and keeps freed blocks below it.
    That is faster for a process that computes with large arrays, and holds memory in one that passes on files.
    """
    _set_malloc(MMAP_THRESHOLD, LARGE_BLOCK)
    _set_malloc(TRIM_THRESHOLD, LARGE_BLOCK)


def _set_malloc(parameter: int, value: int) -> None:
    """Sets a parameter of the C library's allocator, if it is glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(parameter, value)


def give_back_memory() -> None:
    """Makes the C library return freed memory to the system; glibc would hold tens of megabytes of it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def is_lack_of_memory(error: BaseException) -> bool:
    """Returns whether an error says that memory ran out: Python's, numpy's, or torch's on a CPU or a GPU."""
    words = ("can't allocate memory", "out of memory", "could not create a primitive")  # the last is oneDNN's
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(each in str(error) for each in words)
    )


def descendants(pid: int) -> list[int]:
    """Returns the ids of the living processes that a process has started, directly or indirectly."""
    if not (PROCESSES / str(pid) / "task" / str(pid) / "children").is_file():
        import psutil

        try:
            return [each.pid for each in psutil.Process(pid).children(recursive=True)]
        except psutil.Error:
            return []
    found: list[int] = []
    # Linux lists children by the thread that started them, which is quicker than a scan of every process.
    waiting = [pid]
    while waiting:
        for listed in (PROCESSES / str(waiting.pop()) / "task").glob("*/children"):
            with contextlib.suppress(OSError):
                children = [int(each) for each in listed.read_text().split()]
                found += children
                waiting += children
    return found


def machine_bytes() -> int:
    """Returns the memory of this machine, or the limit of the container if that is smaller."""
    import psutil

    total = int(psutil.virtual_memory().total)
    for limit in (CONTROL_GROUP / "memory.max", CONTROL_GROUP / "memory" / "memory.limit_in_bytes"):
        if limit.is_file() and (text := limit.read_text().strip()).isdigit():
            total = min(total, int(text))
    return total


def size(count: int) -> str:
    """Returns bytes as text with two or three significant digits: `1.3 GB`, `412 MB`, `3.6 MB` or `40 kB`."""
    if count >= 999.5e6:
        return f"{count / 1e9:.1f} GB"
    if count >= 9.95e6:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e6:.1f} MB" if count >= 99.5e3 else f"{count / 1e3:.0f} kB"
