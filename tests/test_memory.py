"""Figures of memory: of this process, of another, of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from workbench.memory import machine_bytes, peak_resident_bytes, resident_bytes, size

ROOT = Path(__file__).resolve().parents[1]


def test_the_peak_stays_when_the_memory_is_gone() -> None:
    script = """
        from workbench.memory import peak_resident_bytes, resident_bytes
        import os
        before = peak_resident_bytes()
        block = b"x" * (200 << 20)
        del block
        print(before, peak_resident_bytes(), resident_bytes(os.getpid()))
    """
    code = "\n".join(line.strip() for line in script.strip().splitlines())
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    before, peak, now = map(int, done.stdout.split())
    assert before < 100 << 20, "and the peak of the program that started it is not counted"
    assert 190 << 20 < peak - before < 210 << 20 and now < 100 << 20


def test_what_is_resident_is_what_the_system_says() -> None:
    assert resident_bytes(os.getpid()) == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)
    assert resident_bytes(os.getpid()) <= peak_resident_bytes()


def test_a_process_that_is_gone_has_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    assert resident_bytes(process.pid) == 0


def test_the_machine_has_no_more_than_it_has() -> None:
    assert 1 << 28 < machine_bytes() <= psutil.virtual_memory().total


def test_bytes_read_well() -> None:
    shown = [
        size(count) for count in (0, 99_499, 99_500, 3_640_000, 9_960_000, 412_000_000, 999_600_000, 1_340_000_000)
    ]
    assert shown == ["0 kB", "99 kB", "0.1 MB", "3.6 MB", "10 MB", "412 MB", "1.0 GB", "1.3 GB"]
