"""How much memory processes and this machine use, in bytes; and bytes as people read them."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

PROCESSES = Path("/proc")  # where Linux describes them


def peak_resident_bytes() -> int:
    """The most memory that this process has had resident, memory-mapped weights included.

    What the processes have had that it started and that still run, such as those of a vLLM engine, is added: the most
    of each. Memory that several of them share counts in each.
    """
    own = _peak_bytes("self")
    if own is None:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        own = peak if sys.platform == "darwin" else peak * 1024
    return own + sum(_peak_bytes(str(pid)) or _process_bytes(pid) for pid in _descendants(os.getpid()))


def resident_bytes(pid: int) -> int:
    """What the process, and those that it has started, have resident now; 0 if it is gone.

    Where it has started any, memory that processes share is divided among them, so that it counts once.
    """
    others = _descendants(pid)
    if not others:
        return _process_bytes(pid)
    return sum(_share_bytes(each) for each in (pid, *others))


def _process_bytes(pid: int) -> int:
    """What one process has resident, memory that it shares included; 0 if it is gone."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _share_bytes(pid: int) -> int:
    """What one process has resident; of memory that it shares, its part (the proportional set size of Linux)."""
    kilobytes = _field(PROCESSES / str(pid) / "smaps_rollup", "Pss")
    return _process_bytes(pid) if kilobytes is None else kilobytes * 1024


def _peak_bytes(pid: str) -> int | None:
    """The most that one process has had resident; None where Linux does not tell."""
    # Not getrusage: a program's peak there begins with what the process that started it had resident.
    kilobytes = _field(PROCESSES / pid / "status", "VmHWM")
    return None if kilobytes is None else kilobytes * 1024


def _field(file: Path, name: str) -> int | None:
    """The number behind a name in one of Linux's descriptions."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in file.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return None


def _descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have started, as far as they still run."""
    if not (PROCESSES / str(pid) / "task" / str(pid) / "children").is_file():
        import psutil

        try:
            return [each.pid for each in psutil.Process(pid).children(recursive=True)]
        except psutil.Error:
            return []
    found: list[int] = []
    waiting = [
        pid
    ]  # Linux lists them by the thread that has started them, which is quicker than to look at every process
    while waiting:
        for listed in (PROCESSES / str(waiting.pop()) / "task").glob("*/children"):
            with contextlib.suppress(OSError):
                children = [int(each) for each in listed.read_text().split()]
                found += children
                waiting += children
    return found


def machine_bytes() -> int:
    """The memory of this machine, or of the container where that is less."""
    import psutil

    total = int(psutil.virtual_memory().total)
    for limit in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        if limit.is_file() and (text := limit.read_text().strip()).isdigit():
            total = min(total, int(text))
    return total


def size(count: int) -> str:
    """Bytes as `1.3 GB`, `412 MB`, `3.6 MB` or `40 kB`: two or three digits that matter."""
    if count >= 999.5e6:
        return f"{count / 1e9:.1f} GB"
    if count >= 9.95e6:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e6:.1f} MB" if count >= 99.5e3 else f"{count / 1e3:.0f} kB"
