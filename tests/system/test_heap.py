"""Settings of glibc's allocator, in processes of their own, as they hold for a whole process."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_info"), reason="these are settings of glibc"
)
START = """
    import ctypes, threading
    from workbench.system.memory import map_large_blocks, use_one_heap
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    def report():
        libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
        libc.fflush(None)
"""


def report_of(*lines: str) -> str:
    """Runs lines of Python in a process of its own; returns what glibc reported there."""
    code = textwrap.dedent(START) + "\n".join(lines)
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("one", [False, True])
def test_threads_share_one_heap(one: bool) -> None:
    report = report_of(
        *["use_one_heap()"] * one,
        "barrier = threading.Barrier(5)",
        "def work():",
        "    libc.malloc(1000)",
        "    barrier.wait()",
        "threads = [threading.Thread(target=work) for _ in range(4)]",
        "[each.start() for each in threads]",
        "barrier.wait()",
        "[each.join() for each in threads]",
        "report()",
    )
    heaps = len(re.findall(r"<heap nr=", report))
    assert heaps == 1 if one else heaps > 1


@pytest.mark.parametrize("mapped", [False, True])
def test_a_large_block_is_given_back_after_a_larger_one_was_freed(mapped: bool) -> None:
    report = report_of(
        *["map_large_blocks()"] * mapped,
        "libc.free(libc.malloc(8 << 20))",
        "report()",
        "libc.malloc(4 << 20)",
        "report()",
    )
    before, after = map(int, re.findall(r'<total type="mmap" count="(\d+)"', report))
    assert after - before == (1 if mapped else 0)
