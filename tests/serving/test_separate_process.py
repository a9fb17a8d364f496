"""Function calls in a separate process: results, errors, progress, memory limit and its end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from workbench.core.errors import BadInput, Cancelled, OutOfMemory, WorkbenchError
from workbench.core.progress import listening, report
from workbench.core.visitors import Work, working
from workbench.serving.separate_process import SeparateProcess


def where() -> int:
    return os.getpid()


def tells(count: int) -> int:
    for number in range(count):
        report(number / count, f"part {number}")
    return count


def refuses() -> None:
    raise BadInput("the file is empty")


def breaks() -> None:
    raise KeyError("width")


def takes(gigabytes: float) -> int:
    return int(np.ones(int(gigabytes * (1 << 30)), np.uint8)[-1])


def waits() -> None:
    report(0.5, "half way")
    threading.Event().wait()


def dies() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()


@pytest.fixture(scope="module")
def process() -> Iterator[SeparateProcess]:
    with SeparateProcess(threading.Lock(), 0.2) as process:
        yield process


def test_calls_run_in_one_separate_process_that_reports_progress(process: SeparateProcess) -> None:
    first = process(where)
    told: list[tuple[float, str]] = []
    with listening(lambda share, activity: told.append((share, activity))):
        assert process(tells, 2) == 2
    assert [each for each in told if each[1] != "comparing"] == [(0.0, "part 0"), (0.5, "part 1")]
    assert first != os.getpid() and process(where) == first


def test_errors_are_raised_to_the_caller_and_the_process_continues(process: SeparateProcess) -> None:
    first = process(where)
    with pytest.raises(BadInput, match="the file is empty"):
        process(refuses)
    with pytest.raises(WorkbenchError, match="the comparison failed: KeyError: 'width'"):
        process(breaks)
    with pytest.raises(OutOfMemory, match="more memory than it may have"):
        process(takes, 0.5)
    assert process(takes, 0.1) == 1 and process(where) == first


@pytest.mark.parametrize("how", ["stopped", "unheard"])
def test_process_ends_when_its_call_is_cancelled(process: SeparateProcess, how: str) -> None:
    first, work = process(where), Work()

    def hear(_: float, activity: str) -> None:
        if activity == "half way":
            if how == "unheard":
                raise Cancelled("nobody listens")
            work.stop.set()

    with pytest.raises(Cancelled), working(work), listening(hear):
        process(waits)
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert process(where) != first


def test_killed_process_raises_one_line_error(process: SeparateProcess) -> None:
    with pytest.raises(WorkbenchError, match="ended with signal 15 before it had a result"):
        process(dies)


def test_second_process_waits_for_the_running_one() -> None:
    busy, work = threading.Lock(), Work()
    said: list[str] = []

    def hear(_: float, activity: str) -> None:
        said.append(activity)
        work.stop.set()

    with busy, SeparateProcess(busy) as process, pytest.raises(Cancelled), working(work), listening(hear):
        process(where)
    assert said == ["waiting for another comparison"]
