"""Memory figures: of the current process, of another process, and of the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from workbench.system.memory import machine_bytes, resident_bytes, size

ROOT = Path(__file__).resolve().parents[2]


def test_the_peak_stays_after_memory_is_freed() -> None:
    script = """
        from workbench.system.memory import peak_resident_bytes, resident_bytes
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


def test_resident_memory_equals_the_systems_figure() -> None:
    script = """
        from workbench.system.memory import peak_resident_bytes, resident_bytes
        import os, psutil
        print(resident_bytes(os.getpid()), psutil.Process().memory_info().rss, peak_resident_bytes())
    """
    code = "\n".join(line.strip() for line in script.strip().splitlines())
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    resident, said, peak = map(int, done.stdout.split())
    assert resident == pytest.approx(said, rel=0.05)
    assert resident <= peak


TREE = """
import os, sys
from workbench.system.memory import peak_resident_bytes, resident_bytes
block = b"x" * (100 << 20)  # shared with what is forked now
before = peak_resident_bytes()
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    inner = os.fork()
    own = b"y" * (50 << 20)
    if inner:
        peak = b"z" * (80 << 20)
        del peak
    os.write(write, b"!")
    sys.stdin.read()
    os._exit(0)
for _ in range(2):
    os.read(read, 1)
print(before, resident_bytes(os.getpid()), peak_resident_bytes(), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what is shared")
@pytest.mark.parametrize("known", [True, False])
def test_child_processes_count_and_shared_memory_counts_once(known: bool) -> None:
    """Two processes below the first, with 50 MB each beside the 100 MB that all three share."""
    unknown = "from workbench.system import memory; memory._field = lambda *_: None; block ="
    code = TREE if known else TREE.replace("block =", unknown)
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        before, now, peak = (int(each) >> 20 for each in process.stdout.readline().split())
        if known:
            assert 200 <= now <= 100 + 100 + 3 * 40
            assert before + 2 * 150 + 80 <= peak <= before + 2 * 200 + 80
            assert resident_bytes(process.pid) >> 20 == pytest.approx(now, abs=5)
        else:
            assert now >= 3 * 100 + 2 * 50, "where nothing is known of sharing, it counts in each"


def test_an_ended_process_has_no_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    assert resident_bytes(process.pid) == 0


def test_machine_memory_does_not_exceed_the_total_of_psutil() -> None:
    assert 1 << 28 < machine_bytes() <= psutil.virtual_memory().total


def test_byte_sizes_are_formatted_for_reading() -> None:
    shown = [
        size(count) for count in (0, 99_499, 99_500, 3_640_000, 9_960_000, 412_000_000, 999_600_000, 1_340_000_000)
    ]
    assert shown == ["0 kB", "99 kB", "0.1 MB", "3.6 MB", "10 MB", "412 MB", "1.0 GB", "1.3 GB"]
