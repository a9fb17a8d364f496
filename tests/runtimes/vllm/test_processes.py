"""The processes of an engine, and that none of them is left."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import resource_tracker

import psutil

from workbench.runtimes.vllm.processes import Processes

SLEEPER = [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"]


def test_descendants_of_a_block_end_and_no_others() -> None:
    resource_tracker.ensure_running()  # Python's own, also when it begins within the block
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watched = Processes()
    with watched.watched():
        parent = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)
        while not psutil.Process(parent.pid).children():
            assert parent.poll() is None
    try:
        assert len(watched.alive) == 2 and parent.pid in watched.alive
        grandchild = psutil.Process(next(pid for pid in watched.alive if pid != parent.pid))
        watched.end()
        assert watched.alive == () and not (grandchild.is_running() and grandchild.status() != psutil.STATUS_ZOMBIE)
        assert other.poll() is None
        watched.end()
    finally:
        for process in (parent, other):
            process.kill()
            process.communicate()
