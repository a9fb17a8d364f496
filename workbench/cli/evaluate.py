"""`workbench evaluate`: its progress on stderr, and its numbers on stdout."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from workbench.cli.arguments.models import chosen_options, chosen_settings
from workbench.cli.columns import aligned
from workbench.cli.report import make_report
from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.evaluation import Outcome, read, run
from workbench.evaluation.manifests import Bad
from workbench.evaluation.models import split_models
from workbench.evaluation.report import REPORT
from workbench.evaluation.report.overview import Overview
from workbench.system.endings import note_signal, stopped_status
from workbench.system.memory import size

MAX_SHOWN = 5  # rows that cannot be used; skipped.jsonl has all
LINE_SECONDS = 15.0  # between two lines of progress where stderr is not a terminal


def evaluate(parsed: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Runs the command; returns its exit status."""
    skipped = _SkippedRows(say)
    progress = _Progress()
    try:
        outcome = _run(parsed, progress, skipped.add)
    except KeyboardInterrupt:
        say(f"workbench: stopped; {_counts(parsed.out)}, and the same command continues the run")
        return stopped_status()
    skipped.say_rest(parsed.out)
    for note in outcome.notes:
        say(f"workbench: {note}")
    if outcome.torn:
        say(f"workbench: computed {counted(outcome.torn, 'damaged row')} of an earlier run again")
    progress.show(1.0, "writing the report")
    try:
        figures = make_report(outcome.evaluation)
    finally:
        progress.clear()
    for line in failures(outcome):
        say(f"workbench: {line}")
    if not outcome.computed and any(each.failed for each in outcome.models):
        say("workbench: these are errors of an earlier run; --retry-failed computes their recordings again")
    if parsed.json:
        print(json.dumps({**outcome.to_dict(), "report": figures.to_dict()}, ensure_ascii=False))
    else:
        for line in (*lines(outcome, figures), *(pair.sentence for pair in figures.pairs)):
            print(line)
        print(f"the report is {outcome.evaluation.path / REPORT}")
    return int(any(each.failed and each.failed == each.recordings for each in outcome.models))


def _run(parsed: argparse.Namespace, progress: _Progress, on_skipped: Callable[[Bad], None]) -> Outcome:
    """Computes the results; raises `KeyboardInterrupt` after a signal that stops the command."""
    # Ray prints what happens to its machines on stdout, where --json belongs.
    with _stop_once() as stop, contextlib.redirect_stdout(sys.stderr):

        def on_progress(fraction: float, activity: str) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            progress.show(fraction, activity)

        try:
            return run(
                parsed.manifest,
                list(split_models(parsed.model)),
                parsed.out,
                transcripts=_files_by_name(parsed.transcripts),
                workers=parsed.workers,
                batch_size=parsed.batch_size,
                limit=parsed.limit,
                normaliser=parsed.normaliser,
                split=parsed.split,
                text_column=parsed.text_column,
                address=parsed.address,
                settings=chosen_settings(parsed),
                options=chosen_options(parsed),
                servers=parsed.server,
                retry_failed=parsed.retry_failed,
                on_progress=on_progress,
                on_skipped=on_skipped,
            )
        finally:
            progress.clear()


def _files_by_name(flags: Sequence[str]) -> dict[str, str]:
    """Returns the file of each program; raises `BadInput` for a flag that is not NAME=FILE, and for a name twice."""
    files: dict[str, str] = {}
    for flag in flags:
        name, sign, file = flag.partition("=")
        if not (name and sign and file):
            raise BadInput(f"--transcripts {flag!r:.80} is not NAME=FILE; expected for example whisper=hyp.trn")
        if name in files:
            raise BadInput(f"--transcripts names {name!r:.80} twice; expected each program once")
        files[name] = file
    return files


class _SkippedRows:
    """Says which rows of the manifest cannot be used: the first few one by one, the others as a number."""

    def __init__(self, say: Callable[[str], None]):
        self._say = say
        self._count = 0

    def add(self, row: Bad) -> None:
        """Counts a row."""
        self._count += 1
        if self._count <= MAX_SHOWN:
            self._say(f"workbench: {row.where}: {row.reason}")

    def say_rest(self, out: Path) -> None:
        """Says how many rows were not named."""
        if self._count > MAX_SHOWN:
            omitted = counted(self._count - MAX_SHOWN, "more row")
            self._say(f"workbench: {omitted} cannot be used; skipped.jsonl in {out} has them all")


def failures(outcome: Outcome) -> Iterator[str]:
    """Yields a sentence for each model that has failed on a recording, with the first error."""
    for each in outcome.models:
        if each.failed:
            first = next(result for result in outcome.evaluation.results(each.model) if result.error)
            yield f"{each.model} failed on {each.failed} of {counted(each.recordings, 'recording')}; {first.error}"


def _counts(out: Path) -> str:
    try:
        evaluation = read(out)
        done = sum(evaluation.done().values())
        return f"{out} has {done} of {len(evaluation.models) * evaluation.run.manifest.utterances} results"
    except Exception:  # nothing is there yet
        return "nothing was computed"


def lines(outcome: Outcome, found: Overview) -> Iterator[str]:
    """Yields a table with a row for each model, and the place of the results.

    Args:
        found: the figures of the report; for texts of mixed scripts, the table has their MER too.
    """
    rates = ("MER", "WER", "CER") if found.rate == "MER" else ("WER", "CER")
    rows = [("model", "recordings", "failed", *rates, "RTFx", "processor", "memory")]
    for each, figures in zip(outcome.models, found.models, strict=True):
        rate_of = {"MER": figures.primary.rate, "WER": each.wer, "CER": each.cer}
        rows.append(
            (
                each.model,
                str(each.recordings),
                str(each.failed),
                *(_percent(rate_of[name]) for name in rates),
                "-" if each.rtfx is None else f"{each.rtfx:.1f}",
                "-" if each.cpu_seconds is None else f"{each.cpu_seconds:.1f} s",
                size(each.memory_bytes) if each.memory_bytes else "-",
            )
        )
    yield from aligned(rows)
    computed = counted(outcome.computed, "result")
    yield f"{computed} computed in {outcome.seconds:.1f} s; all are in {outcome.evaluation.path}"


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.2f} %"


class _Progress:
    """A progress line that overwrites itself on a terminal; elsewhere, a new line every few seconds for a log."""

    def __init__(self) -> None:
        self._line = ProgressLine()
        self._last = time.monotonic()

    def show(self, fraction: float, activity: str) -> None:
        """Shows the fraction of the work that is done, and the present activity."""
        text = f"{activity} ({fraction:.1%})"
        if sys.stderr.isatty():
            self._line.show(text)
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Removes the line."""
        self._line.clear()


@contextlib.contextmanager
def _stop_once() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C or SIGTERM sets; a second signal interrupts at once, as usual."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def once(number: int, frame: FrameType | None) -> None:
        stop.set()
        note_signal(number)
        for each, handler in before.items():
            signal.signal(each, handler)

    before = {each: signal.signal(each, once) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
