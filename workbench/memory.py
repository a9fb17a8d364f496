"""How much memory this process and this machine use, in bytes; and bytes as people read them."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_resident_bytes() -> int:
    """The most memory that this process has had resident, memory-mapped weights included."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Not getrusage: a program's peak there begins with what the process that started it had resident.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_bytes(pid: int) -> int:
    """What the process has resident now; 0 if it is gone."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


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
