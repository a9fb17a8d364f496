"""The process that draws pictures for all visitors: shared calls, errors, cancellation and its end."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.serving.test_separate_process import dies, refuses, takes, tells, waits, where
from workbench.core.errors import BadInput, Cancelled, OutOfMemory, WorkbenchError
from workbench.core.progress import listening
from workbench.core.visitors import Work, working
from workbench.serving.drawing import Drawing
from workbench.serving.guard import Guard

LONG = 60.0  # seconds, none of which a test waits for


@pytest.fixture
def drawing() -> Iterator[Drawing]:
    made = Drawing(0.2)
    yield made
    made.close()


def test_drawing_process_starts_with_the_first_call_and_is_shared_by_threads(drawing: Drawing) -> None:
    with ThreadPoolExecutor(4) as threads:
        [process] = set(threads.map(lambda _: drawing(where), range(8)))
    assert process != os.getpid() and psutil.pid_exists(process)
    drawing.close()
    assert not psutil.pid_exists(process)
    assert drawing(where) not in (process, os.getpid())


def test_prepared_module_is_imported_in_the_drawing_process(drawing: Drawing) -> None:
    drawing.prepare("wave")
    assert drawing(imported, "wave") and not drawing(imported, "colorsys")
    drawing.prepare("no_such_module")  # nobody waits for it
    assert drawing(tells, 1) == 1


def imported(module: str) -> bool:
    return module in sys.modules


def test_errors_are_raised_to_the_caller_and_drawing_stays_available(drawing: Drawing) -> None:
    first = drawing(where)
    with pytest.raises(BadInput, match="the file is empty"):
        drawing(refuses)
    with pytest.raises(OutOfMemory, match="the picture needs more memory than it may have here; open a smaller stage"):
        drawing(takes, 0.5)
    assert drawing(where) == first
    with pytest.raises(WorkbenchError, match="the picture ended with signal 15"):
        drawing(dies)
    assert drawing(where) != first


def test_cancel_ends_only_the_call_of_that_visitor(drawing: Drawing) -> None:
    begun, work = threading.Event(), Work()

    def leaves() -> None:
        with working(work), listening(lambda _, activity: begun.set() if activity == "half way" else None):
            drawing(waits)

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(leaves)
        assert begun.wait(LONG)
        other = threads.submit(drawing, tells, 3)
        work.stop.set()
        with pytest.raises(Cancelled):
            one.result(LONG)
        assert other.result(LONG) == 3


def test_an_idle_process_ends_by_itself() -> None:
    drawing = Drawing(idle_seconds=0.0)
    process = drawing(where)
    if (thread := drawing._thread) is not None:
        thread.join(LONG)
    assert drawing(where) != process
    drawing.close()
    assert not psutil.pid_exists(process)


def test_drawing_waits_in_the_call_queue_of_the_server() -> None:
    guard, work, said = Guard("public"), Work(), []

    def hear(_: float, activity: str) -> None:
        said.append(activity)
        work.stop.set()

    with guard.turn("picture"), pytest.raises(Cancelled), working(work), listening(hear):
        guard.draw(where)
    assert "waiting" in said[0]
    process = guard.draw(where)
    assert process != os.getpid()
    guard.drawing.close()
    assert not psutil.pid_exists(process)
