"""Says who made the processor and what it can do, as the operating system lists it."""

from __future__ import annotations

import platform
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
INTEL = "GenuineIntel"


def vendor() -> str:
    """Returns the maker of the processor, such as `GenuineIntel` or `AuthenticAMD`; "" if unknown."""
    if platform.system() != "Windows":  # elsewhere `platform.processor` starts a program
        return _first_value("vendor_id")
    words = platform.processor().split()  # such as "Intel64 Family 6 Model 143 Stepping 8, GenuineIntel"
    return words[-1] if words else ""


def flags() -> frozenset[str]:
    """Returns the features of the processor by Linux's names, such as `amx_int8`. Other systems list none."""
    return frozenset(_first_value("flags").split())


def _first_value(key: str) -> str:
    """Returns the value of the first line with a key in Linux's list; "" if there is none."""
    try:
        with CPU_INFO.open(encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.split(":")[0].strip() == key), "")
    except OSError:
        return ""
