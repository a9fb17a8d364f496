"""The process that draws pictures for all visitors: shared calls, errors, cancellation and its end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.serving.child_processes.test_separate_process import (
    allocate,
    count_up,
    die,
    process_id,
    refuse,
    wait_forever,
)
from workbench.core.errors import BadInput, Cancelled, OutOfMemory, WorkbenchError
from workbench.core.progress import listening
from workbench.core.visitors import Work, working
from workbench.serving.admission.guard import Guard
from workbench.serving.child_processes.drawing import Drawing

LONG = 60.0  # seconds, none of which a test waits for


@pytest.fixture
def drawing() -> Iterator[Drawing]:
    process = Drawing(0.2)
    yield process
    process.close()


def test_drawing_process_starts_with_the_first_call_and_is_shared_by_threads(drawing: Drawing) -> None:
    with ThreadPoolExecutor(4) as threads:
        [process] = set(threads.map(lambda _: drawing(process_id), range(8)))
    assert process != os.getpid() and psutil.pid_exists(process)
    drawing.close()
    assert not psutil.pid_exists(process)
    assert drawing(process_id) not in (process, os.getpid())


def test_prepared_module_is_imported_in_the_drawing_process(drawing: Drawing) -> None:
    drawing.prepare("wave")
    assert drawing(is_imported, "wave") and not drawing(is_imported, "colorsys")
    drawing.prepare("no_such_module")  # no call waits for this import
    assert drawing(count_up, 1) == 1


def is_imported(module: str) -> bool:
    return module in sys.modules


def test_errors_are_raised_to_the_caller_and_drawing_stays_available(drawing: Drawing) -> None:
    pid = drawing(process_id)
    with pytest.raises(BadInput, match="the file is empty"):
        drawing(refuse)
    with pytest.raises(OutOfMemory, match="the picture needs more memory than it may have here; open a smaller stage"):
        drawing(allocate, 0.5)
    assert drawing(process_id) == pid
    with pytest.raises(WorkbenchError, match="the picture ended with SIGTERM"):
        drawing(die, signal.SIGTERM)
    assert drawing(process_id) != pid


def test_cancel_ends_only_the_call_of_that_visitor(drawing: Drawing) -> None:
    started, work = threading.Event(), Work()

    def draw_and_cancel() -> None:
        with working(work), listening(lambda _, activity: started.set() if activity == "half way" else None):
            drawing(wait_forever)

    with ThreadPoolExecutor(2) as threads:
        cancelled_call = threads.submit(draw_and_cancel)
        assert started.wait(LONG)
        other_call = threads.submit(drawing, count_up, 3)
        work.stop.set()
        with pytest.raises(Cancelled):
            cancelled_call.result(LONG)
        assert other_call.result(LONG) == 3


def test_an_idle_process_ends_by_itself() -> None:
    drawing = Drawing(idle_seconds=0.0)
    process = drawing(process_id)
    if (thread := drawing._thread) is not None:
        thread.join(LONG)
    assert drawing(process_id) != process
    drawing.close()
    assert not psutil.pid_exists(process)


def test_drawing_waits_in_the_call_queue_of_the_server() -> None:
    guard, work, activities = Guard("public"), Work(), []

    def record(_: float, activity: str) -> None:
        activities.append(activity)
        work.stop.set()

    with guard.turn("picture"), pytest.raises(Cancelled), working(work), listening(record):
        guard.draw(process_id)
    assert "waiting" in activities[0]
    process = guard.draw(process_id)
    assert process != os.getpid()
    guard.drawing.close()
    assert not psutil.pid_exists(process)
