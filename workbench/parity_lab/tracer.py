"""Computes the traces of a run, one after another, into one folder, and reports progress.

A session is closed before the next is opened. This file knows nothing of comparisons.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from workbench.core.caller import Caller, call_directly
from workbench.core.errors import BadInput, Unavailable
from workbench.core.progress import OnProgress, listening
from workbench.core.runtimes import RUNTIMES
from workbench.core.sides import Side
from workbench.parity_lab.outcome import Computed
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.system.tempdirs import make_tempdir
from workbench.trace.ancestry import Ancestry
from workbench.trace.mapping import StageMapping
from workbench.trace.read import read_trace
from workbench.trace.steps import followed
from workbench.trace.trace import Trace

BEAT_SECONDS = 0.25  # the caller gets progress at least this often, and can then stop the trace
GRACE_SECONDS = 5.0  # after a cancel, a trace has this long before its process is ended
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_LOADED_SHARE, _TRACED_SHARE = 0.4, 0.7  # progress of a side after loading and after tracing


def folder_for(keep: str | Path | None) -> Path | None:
    """Returns the folder to keep traces in, and creates it if needed."""
    if keep is None:
        return None
    folder = Path(keep).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder} is not a folder to keep traces in: {error.strerror or error}") from error
    return folder


@dataclass(frozen=True)
class TraceRequest:
    """The input, stages and options that every side of a run traces."""

    model: str | Path
    source: Any  # as the model takes it
    stages: str  # a glob
    options: Mapping[str, Any]  # of the model; a side may set others
    mapping: StageMapping | None  # names and layouts of the sides that are trace files
    decoding_steps: str  # in the notation of `workbench.trace.steps.read_steps`


class Tracer:
    """Computes traces into a folder, one after another, and reports progress.

    Args:
        folder: of the traces; None for a temporary one.
        count: the number of traces of the run, for the progress.
        call: calls functions that read traces.
    """

    def __init__(
        self,
        registry: Registry,
        request: TraceRequest,
        folder: Path | None,
        on_progress: OnProgress | None,
        count: int,
        call: Caller = call_directly,
    ):
        self._registry, self._request, self._call = registry, request, call
        self._followed: list[int] | Ancestry | None = None
        self._on_progress, self._count, self._step = on_progress, count, -1
        self._owns_folder = folder is None
        self._files: list[Path] = []
        self._substituted_stages: Path | None = None  # the trace whose stages are substituted
        self.folder = folder or make_tempdir()

    def report_progress(self, share: float, activity: str) -> None:
        """Reports progress to the caller of the run; an exception from it ends the run."""
        if self._on_progress:
            self._on_progress(min(share, 1.0), activity)

    def say(self, activity: str) -> None:
        """Reports what is done after the latest trace."""
        self._report_share(_TRACED_SHARE, activity)

    def reading(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """Returns a function that `call` calls. Its reports count as progress after the latest trace."""

        def call_with_progress(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            with listening(
                lambda share, activity: self._report_share(_TRACED_SHARE + (1 - _TRACED_SHARE) * share, activity)
            ):
                return self._call(function, *args, **kwargs)

        return call_with_progress

    def isolate(self, reference: Computed, side: Side) -> None:
        """Substitutes the stages of the reference in all later computations."""
        if side.path is None:
            self._substituted_stages = self._files[-1]
            return
        path = self.folder / "reference-stages.safetensors"  # with our names, which may come from a mapping
        self._files.append(path)
        self._substituted_stages = self.reading(reference.trace.save)(path)

    def follow(self, reference: Computed) -> None:
        """Makes the decoding steps of all later computations follow the reference's tokens or hypotheses."""
        if self._request.decoding_steps:
            self._followed = self.reading(followed)(reference.trace) or None

    def save(self, trace: Trace, name: str) -> Path:
        """Writes a trace to a file of the folder, and returns its path."""
        path = self.folder / f"{name}.safetensors"
        self._files.append(path)
        return self.reading(trace.save)(path)

    def check_inputs(self, candidate: Computed) -> None:
        """Raises `BadInput` for an end to end trace in an isolated run."""
        if self._substituted_stages is not None and not candidate.trace.meta.get("isolated"):
            raise BadInput(
                f"{candidate.name} was computed end to end, and the reference is a trace, which cannot be computed "
                "from its stages; expected a runtime as the reference, or a run end to end"
            )

    def compute(
        self,
        side: Side,
        file: str,
        stages: Sequence[str] = (),
        given: Path | None = None,
        decoding_steps: str | None = None,
    ) -> Computed:
        """Returns the trace of a side in a file of the folder; a side that is already a trace is returned.

        Args:
            stages: globs that replace those of the run.
            given: the trace whose stages are substituted; by default the reference's in an isolated run.
            decoding_steps: decoding steps that replace the run's.
        """
        if side.path is not None:
            self._step += 1
            self._report_share(0.0, f"reading {side.name}")
            return Computed(side.name, read_trace(side.path, self._request.mapping))
        return self.compute_several(side, file, 1, stages, given, decoding_steps)[0]

    def compute_several(
        self,
        side: Side,
        file: str,
        count: int,
        stages: Sequence[str] = (),
        given: Path | None = None,
        decoding_steps: str | None = None,
    ) -> list[Computed]:
        """Returns several traces of one session, each in a file of the folder; the other arguments are those of
        `compute`.
        """
        self._step += 1
        given = given or self._substituted_stages
        if (
            side.runtime is not None
            and given is not None
            and (reason := RUNTIMES[side.runtime].substitution_unsupported)
        ):
            raise Unavailable(reason)  # before the load, which may take long
        start = time.perf_counter()
        self._report_share(0.0, f"loading {side.name}")
        session = self._registry.open(
            side.file or self._request.model,
            runtime=side.runtime,
            on_progress=lambda share, activity: self._report_share(_LOADED_SHARE * share, f"{side.name}: {activity}"),
            **side.settings,
        )
        computed = []
        with session:
            load_end = time.perf_counter()
            requested_steps = self._request.decoding_steps if decoding_steps is None else decoding_steps
            for number in range(count):
                self._step += number > 0
                number_prefix = f"{number + 1}-" if count > 1 else ""
                path = self.folder / f"{file}-{number_prefix}{_file_name(side.name)}.safetensors"
                self._files.append(path)
                trace_start = time.perf_counter()
                trace = self._traced(
                    session, side, path, given, ",".join(stages) or self._request.stages, requested_steps
                )
                if side.file is not None:
                    trace.meta = {**trace.meta, "weights": str(side.file)}  # by which its clean spread is computed
                seconds = load_end - start if number == 0 else 0.0
                computed.append(Computed(side.name, trace, seconds, time.perf_counter() - trace_start))
        return computed

    def _traced(
        self, session: OpenSession, side: Side, path: Path, given: Path | None, stages: str, decoding_steps: str
    ) -> Trace:
        """Returns the trace that the session writes to the file."""
        options = {**self._request.options, **side.options}
        if decoding_steps:
            options |= {"steps": decoding_steps, "follow": self._followed}
        trace = partial(session.trace, self._request.source, stages, given, out=path, **options)
        activity = f"tracing {side.name}"
        if self._on_progress is None:
            return trace()
        self._report_share(_LOADED_SHARE, activity)
        results: list[Trace | BaseException] = []
        last_report = (0.0, activity)  # time and text of the last report

        def on_progress(_: float, text: str) -> None:
            nonlocal last_report
            last_report = time.monotonic(), f"{side.name}: {text}"

        def work() -> None:
            try:
                with listening(on_progress):  # the call reports what it waits for
                    results.append(trace())
            except BaseException as error:  # raised again in the caller's thread
                results.append(error)

        worker = threading.Thread(target=work, name=activity, daemon=True)
        worker.start()
        try:
            start = time.monotonic()
            while worker.is_alive():
                worker.join(BEAT_SECONDS)
                waited_seconds = time.monotonic() - start
                share = _LOADED_SHARE + (_TRACED_SHARE - _LOADED_SHARE) * waited_seconds / (
                    waited_seconds + 10
                )  # the duration is unknown
                latest_activity = last_report[1] if time.monotonic() - last_report[0] < 2 * BEAT_SECONDS else activity
                self._report_share(share, f"{latest_activity}, {waited_seconds:.0f} s")
        except BaseException:
            session.cancel()
            worker.join(GRACE_SECONDS)
            raise
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]

    def _report_share(self, share: float, activity: str) -> None:
        self.report_progress((self._step + share) / self._count, activity)

    def discard(self) -> None:
        """Removes the files that were written."""
        if self._owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        for path in self._files:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.=-]+", "-", name).strip("-.")[:80] or "side"
