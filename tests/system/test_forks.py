"""Processes that may be forked: their children close inherited resources and end with the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.processes import eventually
from workbench.system.forks import forks_allowed

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import os, sys, time
from workbench.system.forks import allow_forks, forks_allowed
reading, writing = os.pipe()
assert not forks_allowed()
allow_forks(lambda: os.close(writing))
assert forks_allowed()
child = os.fork()
if child == 0:
    try:
        os.fstat(writing)
    except OSError:
        print(os.getpid(), "closed", flush=True)
    time.sleep(600)
os.write(writing, b"still open here")
os.waitpid(child, 0)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nowhere else are sessions forked")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_forked_child_closes_the_descriptors_of_its_parent_and_ends_with_it(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, said = parent.stdout.readline().split()
        child = psutil.Process(int(pid))
        assert said == "closed" and child.ppid() == parent.pid
        parent.send_signal(how)
        assert parent.wait() == -how
        eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_forks_are_not_allowed_in_other_processes() -> None:
    assert not forks_allowed(), f"{os.getpid()} runs tests"
