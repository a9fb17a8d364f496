"""The processes of an engine: reports of how they ended, and removal of all of them."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import resource_tracker

import psutil
import pytest

from workbench.runtimes.vllm.processes import Processes, how_it_ended

SLEEPER = [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"]


def test_only_processes_started_within_the_block_are_ended() -> None:
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


@pytest.mark.parametrize(
    ("last_act", "argument", "printed", "sentence"),
    [
        (signal.raise_signal, signal.SIGKILL, "", "was ended by SIGKILL at work, as happens when memory runs out"),
        (signal.raise_signal, signal.SIGTERM, "ValueError: no\n", "was ended by SIGTERM at work"),
        (sys.exit, 1, "(EngineCore) RuntimeError: the device is lost\n", "ended at work: the device is lost"),
        (sys.exit, 1, "all is well\n", "ended at work"),
    ],
)
def test_reason_of_a_process_exit_is_reported(
    last_act: Callable[[int], None], argument: int, printed: str, sentence: str
) -> None:
    process = multiprocessing.get_context("spawn").Process(target=last_act, args=(argument,))
    process.start()
    assert how_it_ended([process], printed) == sentence
