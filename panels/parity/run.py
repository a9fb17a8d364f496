"""Runs a comparison in a thread and reports its progress; stores the last run of each user.

This file knows neither Gradio nor HTML.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from panels.parity.request import Request
from panels.running.last_results import MAX_RESULTS, LastResults
from panels.running.progress import changes
from workbench.core.caller import Caller, call_directly
from workbench.core.errors import BadInput, Cancelled
from workbench.core.progress import listening
from workbench.core.visitors import check_work
from workbench.parity_lab import ParityRun, ParityRuns, run_parity, run_parity_on_inputs
from workbench.registry.registry import Registry
from workbench.serving.admission.guard import Guard

PARITY = "parity"  # the kind of these calls in the server's queue
NOT_KEPT = "that comparison is not kept any more; run it again"


def compute(
    registry: Registry,
    request: Request,
    on_progress: Callable[[float, str], None] | None = None,
    call: Caller = call_directly,
) -> ParityRun:
    """Computes the run of a request; `on_progress` and `call` as in `workbench.parity_lab.run_parity`."""
    return run_parity(
        registry,
        request.model,
        request.source,
        request.reference,
        request.candidates,
        request.options,
        on_progress=on_progress,
        call=call,
    )


def compute_several(
    registry: Registry,
    request: Request,
    on_progress: Callable[[float, str], None] | None = None,
    call: Caller = call_directly,
) -> ParityRuns:
    """Computes a request on its several inputs; the result has one verdict over all of them."""
    return run_parity_on_inputs(
        registry,
        request.model,
        request.inputs,
        request.reference,
        request.candidates,
        request.options,
        on_progress=on_progress,
        call=call,
    )


@dataclass(frozen=True)
class Step:
    """The progress of a run."""

    share: float = 0.0  # 0 to 1
    activity: str = "starting"
    seconds: float = 0.0  # since the start
    stopping: bool = False
    stopped: bool = False
    run: ParityRun | ParityRuns | None = None  # set when it is finished


def follow(registry: Registry, request: Request, stop: threading.Event, guard: Guard | None = None) -> Iterator[Step]:
    """Computes a request in a thread; yields its progress several times a second, and last the result.

    With a guard, the run waits in the queue of the server, is judged in a process of its own
    (`workbench.serving.child_processes`), and ends at its deadline. Setting `stop` ends the run at its next check, and
    the last step then says that it was stopped. Closing the iterator ends it too, without a last step. Raises the same
    errors as `workbench.parity_lab.run_parity`.
    """
    start = time.perf_counter()
    latest_reports: list[Any] = [(0.0, "starting")]
    unattended = threading.Event()

    def work(report: Callable[[Any], None]) -> None:
        def on_progress(share: float, activity: str) -> None:
            if stop.is_set():
                raise Cancelled("the comparison was stopped")
            check_work()
            report((share, activity))

        try:
            turn = guard.turn(PARITY, alone=False) if guard else nullcontext()
            with (
                listening(on_progress),
                turn,
                guard.separate_process() if guard else nullcontext(call_directly) as call,
            ):
                report((compute_several if request.inputs else compute)(registry, request, on_progress, call))
        except BaseException as error:  # raised again in the thread that follows the run
            report(error)

    def receive(result: Any) -> None:
        latest_reports[0] = result

    def step() -> Step:
        result = latest_reports[0]
        share, activity = result if isinstance(result, tuple) else (1.0, "done")
        return Step(share, activity, time.perf_counter() - start, stop.is_set())

    try:
        yield step()
        for _ in changes(work, receive, unattended):
            yield step()
    finally:
        unattended.set()
        was_stopped = stop.is_set()
        stop.set()  # a closed iterator ends the work
    result = latest_reports[0]
    if isinstance(result, ParityRun | ParityRuns):
        yield Step(1.0, "done", time.perf_counter() - start, run=result)
    elif isinstance(result, Cancelled) and was_stopped:
        yield Step(0.0, "stopped", time.perf_counter() - start, stopped=True)
    else:
        raise result


class LastRuns(LastResults[ParityRun | ParityRuns]):
    """The last run of each user. The traces of a run on one input are in files until it is removed."""

    def __init__(self, limit: int = MAX_RESULTS):
        super().__init__(NOT_KEPT, limit, _close)

    def of(self, user: str) -> ParityRun | ParityRuns:
        """Returns the user's run; raises `BadInput` if it, or its traces, are not kept any more."""
        run = super().of(user)
        if isinstance(run, ParityRun) and not run.folder.is_dir():
            raise BadInput(NOT_KEPT)
        return run


def _close(run: ParityRun | ParityRuns) -> None:
    if isinstance(run, ParityRun):
        run.close()
