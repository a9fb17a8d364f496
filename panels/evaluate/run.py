"""Runs an evaluation for the page in a thread, and reports its progress. This file does not know Gradio."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.core.errors import BadInput, Cancelled
from workbench.core.progress import listening
from workbench.core.visitors import bound, check_work, current_work, seconds_in_words, stoppable
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
    start = time.monotonic()
    state = Step()
    found: list[Results] = []
    failed: list[Exception] = []
    out = job.folder / "results"

    def show_progress(share: float, activity: str) -> None:
        nonlocal state
        state = replace(state, share=share, activity=activity)
        if stop.is_set():
            raise Cancelled("the evaluation was stopped")
        try:
            check_work()
        except BadInput as over_time:
            limited = current_work()
            assert limited is not None
            state = replace(state, time_limit=seconds_in_words(limited.allowed_seconds))
            raise Cancelled(str(over_time)) from over_time

    def in_turn(*arguments: Any, **settings: Any) -> None:
        with listening(show_progress), guard.turn(EVALUATION, alone=False) if guard else nullcontext():
            compute(*arguments, **settings)

    def skipped(row: object) -> None:
        nonlocal state
        state = replace(state, skipped=state.skipped + 1)

    def work() -> None:
        nonlocal state
        try:
            try:
                in_turn(
                    job.manifest,
                    job.models,
                    out,
                    normaliser=job.normaliser,
                    limit=job.limit,
                    registry=registry,
                    on_progress=show_progress,
                    on_skipped=skipped,
                )
            except Cancelled:
                state = replace(state, stopped=True)
                if not caller_gone.is_set() and _has_results(out):
                    found.append(opened(read(out), job.folder, time.monotonic() - start))
                elif state.time_limit:
                    raise BadInput(
                        f"no recording was finished in the {state.time_limit} that one run may take here; evaluate "
                        "fewer models or shorter recordings"
                    ) from None
                return
            state = replace(state, share=1.0, activity="writing the report")
            found.append(opened(read(out), job.folder, time.monotonic() - start))
        except Exception as error:
            failed.append(error)
        finally:
            if not found or caller_gone.is_set():  # nobody will close the results
                shutil.rmtree(job.folder, ignore_errors=True)

    caller_gone = threading.Event()  # set when the caller has left
    with stoppable(stop):
        thread = threading.Thread(target=bound(work), daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(BEAT)
            if thread.is_alive():
                yield replace(state, stopped=False, stopping=stop.is_set(), seconds=time.monotonic() - start)
    finally:
        caller_gone.set()
        stop.set()
    if failed:
        raise failed[0]
    yield replace(state, seconds=time.monotonic() - start, results=found[0] if found else None)


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
