"""Function calls in a separate process: results, errors, progress, memory limit and its end."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import numpy as np
import psutil
import pytest

from tests.support.waits import until
from workbench.core.errors import BadInput, Cancelled, OutOfMemory, WorkbenchError
from workbench.core.progress import listening, report
from workbench.core.visitors import Work, working
from workbench.serving.child_processes.separate_process import SeparateProcess


def process_id() -> int:
    return os.getpid()


def count_up(count: int) -> int:
    for number in range(count):
        report(number / count, f"part {number}")
    return count


def refuse() -> None:
    raise BadInput("the file is empty")


def fail() -> None:
    raise KeyError("width")


def allocate(gigabytes: float) -> int:
    return int(np.ones(int(gigabytes * (1 << 30)), np.uint8)[-1])


def wait_forever() -> None:
    report(0.5, "half way")
    threading.Event().wait()


def die(number: int) -> None:
    os.kill(os.getpid(), number)
    threading.Event().wait()


@pytest.fixture(scope="module")
def process() -> Iterator[SeparateProcess]:
    with SeparateProcess(threading.Lock(), 0.2) as process:
        yield process


def test_calls_run_in_one_separate_process_that_reports_progress(process: SeparateProcess) -> None:
    pid = process(process_id)
    reports: list[tuple[float, str]] = []
    with listening(lambda share, activity: reports.append((share, activity))):
        assert process(count_up, 2) == 2
    assert [entry for entry in reports if entry[1] != "comparing"] == [(0.0, "part 0"), (0.5, "part 1")]
    assert pid != os.getpid() and process(process_id) == pid


def test_errors_are_raised_to_the_caller_and_the_process_continues(process: SeparateProcess) -> None:
    pid = process(process_id)
    with pytest.raises(BadInput, match="the file is empty"):
        process(refuse)
    with pytest.raises(WorkbenchError, match="the comparison failed: KeyError: 'width'"):
        process(fail)
    with pytest.raises(OutOfMemory, match="more memory than it may have"):
        process(allocate, 0.5)
    assert process(allocate, 0.1) == 1 and process(process_id) == pid


@pytest.mark.parametrize("way", ["stop", "listener"])
def test_process_ends_when_its_call_is_cancelled(process: SeparateProcess, way: str) -> None:
    pid, work = process(process_id), Work()

    def listener(_: float, activity: str) -> None:
        if activity == "half way":
            if way == "listener":
                raise Cancelled("the listener left")
            work.stop.set()

    with pytest.raises(Cancelled), working(work), listening(listener):
        process(wait_forever)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert process(process_id) != pid


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (signal.SIGTERM, "the comparison ended with SIGTERM before it had a result"),
        (signal.SIGKILL, "the comparison was ended by SIGKILL, as happens when memory runs out; try again, or compare"),
    ],
)
def test_killed_process_raises_one_line_error(process: SeparateProcess, number: int, sentence: str) -> None:
    with pytest.raises(WorkbenchError, match=sentence):
        process(die, number)


def test_process_that_was_killed_between_two_calls_is_replaced(process: SeparateProcess) -> None:
    pid = process(process_id)
    os.kill(pid, signal.SIGKILL)
    until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    assert process(process_id) != pid


def test_process_that_is_killed_while_it_answers_raises_a_one_line_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    parent_socket, child_socket = socket.socketpair()
    child_socket.sendall(struct.pack("!i", 1000) + b"a part")
    child_socket.shutdown(socket.SHUT_WR)
    with child_socket, SeparateProcess(threading.Lock()) as answering:
        connection = Connection(parent_socket.detach())
        monkeypatch.setattr(answering, "_start", lambda: (ended, connection))
        with pytest.raises(WorkbenchError, match="the comparison ended with status 3 before it had a result"):
            answering(process_id)


def test_second_process_waits_for_the_running_one() -> None:
    busy, work = threading.Lock(), Work()
    activities: list[str] = []

    def record(_: float, activity: str) -> None:
        activities.append(activity)
        work.stop.set()

    with busy, SeparateProcess(busy) as process, pytest.raises(Cancelled), working(work), listening(record):
        process(process_id)
    assert activities == ["waiting for another comparison"]
