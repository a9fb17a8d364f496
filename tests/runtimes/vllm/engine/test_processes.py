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

from workbench.runtimes.vllm.engine.processes import Processes, how_it_ended

SLEEPER = [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"]


def test_only_processes_started_within_the_block_are_ended() -> None:
    resource_tracker.ensure_running()  # the tracker is never ended, even if it starts within the block
    unrelated = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    processes = Processes()
    with processes.watched():
        parent = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)
        while not psutil.Process(parent.pid).children():
            assert parent.poll() is None
    try:
        assert len(processes.alive) == 2 and parent.pid in processes.alive
        grandchild = psutil.Process(next(pid for pid in processes.alive if pid != parent.pid))
        processes.end()
        assert processes.alive == () and not (grandchild.is_running() and grandchild.status() != psutil.STATUS_ZOMBIE)
        assert unrelated.poll() is None
        processes.end()
    finally:
        for process in (parent, unrelated):
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("last_act", "argument", "log_text", "sentence"),
    [
        (signal.raise_signal, signal.SIGKILL, "", "was ended by SIGKILL at work, as happens when memory runs out"),
        (signal.raise_signal, signal.SIGTERM, "ValueError: no\n", "was ended by SIGTERM at work"),
        (sys.exit, 1, "(EngineCore) RuntimeError: the device is lost\n", "ended at work: the device is lost"),
        (sys.exit, 1, "all is well\n", "ended at work"),
    ],
)
def test_reason_of_a_process_exit_is_reported(
    last_act: Callable[[int], None], argument: int, log_text: str, sentence: str
) -> None:
    process = multiprocessing.get_context("spawn").Process(target=last_act, args=(argument,))
    process.start()
    assert how_it_ended([process], log_text) == sentence
