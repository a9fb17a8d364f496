"""Runs an evaluation for the page in a thread, and reports its progress. This file does not know Gradio."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.core.errors import BadInput, Cancelled
from workbench.core.progress import listening
from workbench.core.visitors import check_work, current_work, in_current_context, seconds_in_words, stoppable
from workbench.evaluation.places import Recordings
from workbench.evaluation.report import REPORT, Columns, page, read_columns
from workbench.evaluation.report.overview import Overview, overview
from workbench.evaluation.report.page import save_page, sounds_in
from workbench.evaluation.rows import Utterance
from workbench.evaluation.runner import run as evaluate
from workbench.evaluation.store import RUN, Evaluation, read
from workbench.registry.registry import Registry
from workbench.serving.admission.guard import Guard

EVALUATION = "evaluation"  # the kind of these calls in the server's queue
CORPUS = "corpus"  # the folder of uploaded files below that of a job
BEAT = 0.4  # seconds between two lines of progress
NOT_KEPT = "these results are not kept any more; run or open the evaluation again"

Compute = Callable[..., Any]  # takes what `workbench.evaluation.run` takes


@dataclass(frozen=True)
class Job:
    """What to evaluate."""

    manifest: str
    models: Sequence[str]
    normaliser: str
    limit: int | None
    folder: Path  # for this job alone; removed with its results
    transcripts: Mapping[str, str] = field(default_factory=dict)  # files of other programs by the name of the program


@dataclass(frozen=True, eq=False)
class Results:
    """The results of a run, complete or up to its stop, with their report."""

    key: str  # only its user knows it
    evaluation: Evaluation
    columns: Columns
    figures: Overview
    folder: Path  # the folder with the report
    seconds: float

    @property
    def report(self) -> Path:
        """The file of the report."""
        return self.folder / REPORT

    def utterance(self, name: str) -> Utterance:
        """Returns the recording with that name; raises `BadInput` if there is none."""
        for each in self.columns.utterances:
            if each.id == name:
                return each
        raise BadInput(f"there is no recording {name!r:.80} among these results")

    def recordings(self) -> Recordings:
        """Returns the reader of their sound."""
        return Recordings(self.evaluation.run.manifest.root)

    def close(self) -> None:
        """Removes the folder with the report."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class Step:
    """The progress of a run."""

    share: float = 0.0
    activity: str = "starting"
    seconds: float = 0.0
    stopping: bool = False
    stopped: bool = False
    time_limit: str = ""  # the longest time of a run here, if that stopped it
    skipped: int = 0  # rows of the manifest that cannot be used
    results: Results | None = None
    notes: Sequence[str] = ()  # on transcripts of other programs, a sentence each

    @property
    def finished(self) -> bool:
        """Whether the run has ended, with results or after a stop."""
        return self.results is not None or self.stopped


def new_folder(parent: Path) -> Path:
    """Returns a folder for one job, which is not made yet; nobody can guess its name."""
    return parent / f"evaluation-{secrets.token_urlsafe(12)}"


def run(
    registry: Registry,
    job: Job,
    stop: threading.Event,
    compute: Compute = evaluate,
    guard: Guard | None = None,
) -> Iterator[Step]:
    """Runs a job and yields its progress; the last step has the results, also after a stop if there are any.

    With a guard, the run waits in the queue of the server and stops at its deadline. Raises the errors of the run. If
    the caller leaves, the run is stopped. Without results, the folder of the job is removed.
    """
    work = _Work(registry, job, stop, compute, guard)
    with stoppable(stop):
        thread = threading.Thread(target=in_current_context(work.run), daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(BEAT)
            if thread.is_alive():
                yield replace(work.state, stopped=False, stopping=stop.is_set(), seconds=work.seconds)
    finally:
        work.caller_gone.set()
        stop.set()
    if work.error is not None:
        raise work.error
    yield replace(work.state, seconds=work.seconds, results=work.results)


class _Work:
    """The work of a run, which goes on in a thread of its own.

    Args: as `run`'s.
    """

    def __init__(
        self, registry: Registry, job: Job, stop: threading.Event, compute: Compute, guard: Guard | None
    ) -> None:
        self._registry = registry
        self._job = job
        self._stop = stop
        self._compute = compute
        self._guard = guard
        self._out = job.folder / "results"
        self._start_time = time.monotonic()
        self.state = Step()
        self.results: Results | None = None
        self.error: Exception | None = None
        self.caller_gone = threading.Event()

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._start_time

    def run(self) -> None:
        """Computes the job, then sets `results`, or `error`; after a stop, `results` if there are any."""
        try:
            try:
                self._evaluate()
            except Cancelled:
                self._set_stopped()
            else:
                self.state = replace(self.state, share=1.0, activity="writing the report")
                self._open_results()
        except Exception as error:
            self.error = error
        finally:
            if self.results is None or self.caller_gone.is_set():  # nobody will close the results
                shutil.rmtree(self._job.folder, ignore_errors=True)

    def _evaluate(self) -> None:
        turn = self._guard.turn(EVALUATION, alone=False) if self._guard else nullcontext()
        with listening(self._show_progress), turn:
            outcome = self._compute(
                self._job.manifest,
                self._job.models,
                self._out,
                transcripts=self._job.transcripts,
                normaliser=self._job.normaliser,
                limit=self._job.limit,
                registry=self._registry,
                on_progress=self._show_progress,
                on_skipped=self._count_skipped,
            )
        self.state = replace(self.state, notes=outcome.notes)

    def _set_stopped(self) -> None:
        self.state = replace(self.state, stopped=True)
        if not self.caller_gone.is_set() and _has_results(self._out):
            self._open_results()
        elif self.state.time_limit:
            raise BadInput(
                f"no recording was finished in the {self.state.time_limit} that one run may take here; evaluate fewer "
                "models or shorter recordings"
            ) from None

    def _open_results(self) -> None:
        self.results = opened(read(self._out), self._job.folder, self.seconds)

    def _show_progress(self, share: float, activity: str) -> None:
        self.state = replace(self.state, share=share, activity=activity)
        if self._stop.is_set():
            raise Cancelled("the evaluation was stopped")
        try:
            check_work()
        except BadInput as over_time:
            limited = current_work()
            assert limited is not None
            self.state = replace(self.state, time_limit=seconds_in_words(limited.allowed_seconds))
            raise Cancelled(str(over_time)) from over_time

    def _count_skipped(self, row: object) -> None:
        self.state = replace(self.state, skipped=self.state.skipped + 1)


def _has_results(directory: Path) -> bool:
    """Returns whether a run that was stopped has finished a recording; it may have been stopped before it began."""
    return (directory / RUN).exists() and any(read(directory).done().values())


def opened(evaluation: Evaluation, folder: Path, seconds: float = 0.0) -> Results:
    """Returns the results of a directory, with a report that is written into `folder`.

    Raises `BadInput` if there are none.
    """
    columns = _as_uploaded(read_columns(evaluation), folder / CORPUS)
    figures = overview(columns)
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(secrets.token_urlsafe(16), evaluation, columns, figures, folder, seconds)
    save_page(page(columns, sounds_in(evaluation), figures), results.report)
    return results


def _as_uploaded(columns: Columns, corpus: Path) -> Columns:
    """Returns columns whose manifest is named as it was uploaded, without the folder on the server that keeps it."""
    if columns.run is None or not Path(columns.run.manifest.path).is_relative_to(corpus):
        return columns
    name = Path(columns.run.manifest.path).relative_to(corpus).as_posix()
    path = "uploaded files" if name == "." else name
    renamed = replace(columns.run, manifest=replace(columns.run.manifest, path=path, root=""))
    return replace(columns, run=renamed, title=f"Evaluation over {PurePosixPath(path).name}")
