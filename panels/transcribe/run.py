"""Runs several models over several recordings, and yields the table of results after every step.

The work runs in a separate thread, so that the page can show progress and stop at once while a model is busy. Results
that finished before a stop or a failure of another model stay. This file knows neither Gradio nor HTML.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from panels.running.choices import ModelOnRuntime, RuntimeOffer
from panels.running.progress import tables
from panels.running.sessions import SessionPool
from panels.transcribe.job import Job, Row, RunState
from workbench.audio.check import refusals
from workbench.core.errors import Cancelled, WorkbenchError
from workbench.core.progress import listening
from workbench.core.runtimes import RUNTIMES
from workbench.core.visitors import in_current_context
from workbench.registry.handle import OpenSession
from workbench.serving.work import follower, opened
from workbench.session.values import Partial, Progress, Segment, Transcript
from workbench.text.rates import score
from workbench.text.scripts import join_texts

ROWS_AT_ONCE = 16  # recordings that one run sends in parallel to a session that takes several calls
STOPPED_NOTE = "stopped before its end"
Show = Callable[[Row], None]  # called with a row that has changed
Step = TypeVar("Step")

log = logging.getLogger(__name__)


def run(pool: SessionPool, job: Job, stop: threading.Event) -> Iterator[RunState]:
    """Yields the table when it has changed, at most as often as `panels.running.progress` allows, and at the end.

    It goes model by model, so that each loads once, and recording by recording, or several in parallel if the runtime
    takes several calls. While a model works for another user, the other models go first. The failure of a model or a
    recording affects only its own rows. Setting `stop` or closing the iterator ends the run at once, and the model's
    work at its next check.
    """
    rows = job.rows()
    return tables(
        rows,
        partial(_work, pool, job, rows, stop),
        stop,
        partial(RunState, instead=job.instead),
        stopped,
    )


def stopped(row: Row) -> Row:
    """Returns a running or waiting row as it is after a stop: the text so far is its transcript."""
    found = replace(row, status="stopped", progress=None)
    if not row.segments:
        return found
    transcript = Transcript(
        row.cell.model,
        row.cell.runtime,
        row.writing,
        None,
        row.segments,
        tuple(token.id for part in row.segments for token in part.tokens),
        row.segments[-1].end,
        0.0,
        0.0,
        notes=(STOPPED_NOTE,),
        quantization=row.cell.quantization or None,
    )
    return replace(found, transcript=transcript, segments=())


def _work(
    pool: SessionPool,
    job: Job,
    rows: Sequence[Row],
    stop: threading.Event,
    show: Show,
) -> None:
    """Computes the rows and shows every change."""
    if refused := refusals(row.path for row in rows):  # no model is loaded then
        for row in rows:
            show(replace(row, status="failed", error=str(refused[row.path])))
        return
    hopeless: set[ModelOnRuntime] = set()  # models that could not be loaded
    loads = Loads(show)
    loads.begin(pool, job, rows, stop)

    def occupied(step: tuple[RuntimeOffer, list[Row]]) -> bool:
        cell = step[0].cell
        return pool.occupied(cell.model, cell.runtime, cell.quantization, job.settings_of(step[0]))

    for offer, step_rows in idle_first(_steps(job, rows), occupied):
        if offer.cell in hopeless:
            continue
        loads.take(offer.cell)
        try:
            session = _open(pool, step_rows[0], job.settings_of(offer), stop, show)
        except Cancelled:
            return
        except Exception as error:  # loading would fail for the next recording too
            hopeless.add(offer.cell)
            for row in rows:
                if row.cell == offer.cell:
                    show(replace(row, status="failed", error=sentence_of(error)))
            continue

        def transcribe_row(row: Row, session: OpenSession = session) -> None:
            try:
                _listen(session, row, job, stop, show)
            except Cancelled:
                if not stop.is_set():
                    show(stopped(row))
            except Exception as error:
                show(replace(row, status="failed", error=sentence_of(error)))

        _each(step_rows, transcribe_row, ROWS_AT_ONCE, stop)
        if stop.is_set():
            return


class Loads:
    """Loads the small models of a run side by side, while the run computes with those that are ready.

    The models still compute one after another, so that each model's figures are its own. Large models load when it is
    their turn, because two of them may not fit into memory together.
    """

    def __init__(self, show: Show):
        self._show = show
        self._taken: set[ModelOnRuntime] = set()  # models whose rows the run itself shows now
        self._lock = threading.Lock()

    def take(self, cell: ModelOnRuntime) -> None:
        """Notes that the run goes on with that model, and shows its rows itself from now on."""
        with self._lock:
            self._taken.add(cell)

    def begin(self, pool: SessionPool, job: Job, rows: Sequence[Row], stop: threading.Event) -> None:
        """Starts a load for each demo model of the run, if there are several."""
        small = [offer for offer in job.offers if offer.ready and offer.card.kind == "demo"]
        for offer in small if len(small) > 1 else ():
            row = next(row for row in rows if row.cell == offer.cell)
            threading.Thread(target=self._load, args=(pool, row, job.settings_of(offer), stop), daemon=True).start()

    def _load(self, pool: SessionPool, row: Row, settings: Mapping[str, Any], stop: threading.Event) -> None:
        with contextlib.suppress(Exception):  # the run opens it again, and reports the error
            opened(pool, row.cell, stop, partial(self._show_activity, row), settings)
            self._change(replace(row, progress=Progress(0.0, 0.0, "loaded, waiting for its turn"), status="running"))

    def _show_activity(self, row: Row, activity: str) -> None:
        self._change(replace(row, status="running", progress=Progress(0.0, 0.0, activity)))

    def _change(self, row: Row) -> None:
        with self._lock:
            if row.cell not in self._taken:
                self._show(row)


def _steps(job: Job, rows: Sequence[Row]) -> list[tuple[RuntimeOffer, list[Row]]]:
    """Returns the steps, model by model: one recording, or all of them for a runtime that takes several calls."""
    steps = []
    for offer in job.offers:
        model_rows = [row for row in rows if row.cell == offer.cell]
        parallel = RUNTIMES[offer.cell.runtime].parallel
        steps += [(offer, model_rows)] if parallel else [(offer, [row]) for row in model_rows]
    return steps


def idle_first(steps: Iterable[Step], occupied: Callable[[Step], bool]) -> Iterator[Step]:
    """Yields the steps in their order, but steps of models that work for another user go later.

    If all models are busy, it yields the first, which then waits. It checks again before each step.
    """
    waiting = list(steps)
    while waiting:
        step = next((each for each in waiting if not occupied(each)), waiting[0])
        waiting.remove(step)
        yield step


def _each(rows: Sequence[Row], work: Callable[[Row], None], at_once: int, stop: threading.Event) -> None:
    """Calls `work` with every row in order, `at_once` in parallel, until all are done or `stop` is set."""
    waiting = deque(rows)

    def take() -> None:
        while waiting and not stop.is_set():
            try:
                row = waiting.popleft()
            except IndexError:  # another thread took the last
                return
            work(row)

    threads = [
        threading.Thread(target=in_current_context(take), daemon=True) for _ in range(min(at_once, len(rows)) - 1)
    ]
    for thread in threads:
        thread.start()
    take()
    for thread in threads:
        thread.join()


def _open(pool: SessionPool, row: Row, settings: Mapping[str, Any], stop: threading.Event, show: Show) -> OpenSession:
    return opened(pool, row.cell, stop, partial(_show_activity, row, show), settings)


def _show_activity(row: Row, show: Show, activity: str) -> None:
    show(replace(row, status="running", progress=Progress(0.0, 0.0, activity)))


def _listen(session: OpenSession, row: Row, job: Job, stop: threading.Event, show: Show) -> None:
    row = replace(row, status="running", weight_bytes=session.weight_bytes)
    finished: tuple[Segment, ...] = ()
    waits = listening(follower(stop, partial(_show_activity, row, show)))  # before the call's first event
    with waits, closing(session.stream(row.path, **job.options.get(row.cell.model, {}))) as events:
        for event in events:
            if stop.is_set():
                raise Cancelled("the run was stopped")
            if isinstance(event, Progress):
                row = replace(row, progress=event)
            elif isinstance(event, Partial):
                unfinished = (Segment(event.start, event.end, event.text),) if event.text.strip() else ()
                row = _with_segments(row, (*finished, *unfinished))
            elif isinstance(event, Segment):
                finished = (*finished, event)
                row = _with_segments(row, finished)
            elif isinstance(event, Transcript):
                rated = None if row.reference is None else score(row.reference, event.text, job.normaliser)
                row = replace(row, status="done", progress=None, writing="", segments=(), transcript=event, score=rated)
            show(row)


def _with_segments(row: Row, segments: tuple[Segment, ...]) -> Row:
    return replace(row, segments=segments, writing=join_texts([part.text for part in segments]))


def sentence_of(error: Exception) -> str:
    """Returns the message about a failure; logs an unexpected error."""
    if isinstance(error, WorkbenchError):
        return str(error)
    log.error("a model failed with an unexpected error", exc_info=error)
    return f"the workbench failed with {type(error).__name__}; the log of the server has the details"
