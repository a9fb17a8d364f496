"""Makes a trace from recorded stages: adds metadata about the model, its input and the substituted stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.progress import report
from workbench.core.runtimes import RUNTIMES
from workbench.session.protocols import Session
from workbench.system.versions import versions
from workbench.trace.gradients import gradient_stage, is_gradient
from workbench.trace.inside import no_such_part_message, only_inside
from workbench.trace.recorder import stage_digest
from workbench.trace.trace import OutputPath, StageFilter, StageSource, Trace
from workbench.trace.write import trace_place

NO_STAGE = "no stage"  # the beginning of each message about a glob that matches nothing


class SubstitutedStages(Mapping[str, np.ndarray]):
    """The substituted stages that a trace is computed from; stages in a file are read on demand."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.used: dict[str, str] = {}  # digests of the stages that were read

    def __getitem__(self, stage: str) -> np.ndarray:
        array = self.trace[stage]
        self.used[stage] = stage_digest(array)
        return array

    def __contains__(self, stage: object) -> bool:
        return stage in self.trace

    def __iter__(self) -> Iterator[str]:
        return iter(self.trace)

    def __len__(self) -> int:
        return len(self.trace)


def substituted_stages(given: StageSource, digest: str) -> SubstitutedStages | None:
    """Returns the substituted stages in `given`, or None if there are none.

    Args:
        digest: the input's digest.

    Raises `BadInput` if `given` is not a trace, or is a trace of another input.
    """
    if given is None:
        return None
    from workbench.trace.read import read_trace

    trace = given if isinstance(given, Trace) else read_trace(given)
    trace_digest = trace.meta.get("input_digest")
    if trace_digest is not None and trace_digest != digest:
        raise BadInput(
            f"the trace to compute from has another input (digest {trace_digest!s:.32}, of this one {digest}); "
            "expected a trace of the same input"
        )
    return SubstitutedStages(trace)


def output_path(out: OutputPath) -> Path | None:
    """Returns the path that the trace is written to, or None. Raises `BadInput` if a trace cannot be written there."""
    return None if out is None else trace_place(out)


def substitution_meta(substituted: SubstitutedStages | None) -> dict[str, Any]:
    """Returns a trace's metadata about its substituted stages: the digest of each stage that was used.

    `workbench.compare.inputs` recognises the trace they came from by these digests. Raises `BadInput` if no stage was
    used.
    """
    if substituted is None:
        return {}
    if not substituted.used:
        stage_names = ", ".join(list(substituted)[:5]) or "none"
        raise BadInput(
            f"the trace to compute from has none of the stages of this pass (it has {stage_names}); expected a trace "
            "of this model"
        )
    return {"isolated": True, "given": dict(substituted.used)}


def _check_inside(session: Session, stages: Mapping[str, np.ndarray], glob: str) -> None:
    """Raises `BadInput` for a glob that is only for stages inside a layer and has found none."""
    runtime = RUNTIMES.get(session.runtime)
    for pattern in filter(only_inside, StageFilter(glob).patterns):
        if not any(map(StageFilter(pattern, is_recorded=True), stages)):
            absent = runtime.missing_inner_stages if runtime else {}
            raise BadInput(no_such_part_message(pattern, f"{session.model} on {session.runtime}", absent))


def _check_gradients(session: Session, stages: Mapping[str, np.ndarray], glob: str, isolated: bool) -> None:
    """Raises `BadInput`, which says why, for a glob of gradients that has found none."""
    runtime = RUNTIMES.get(session.runtime)
    for pattern in filter(is_gradient, StageFilter(glob).patterns):
        if not any(map(StageFilter(pattern, is_recorded=True), stages)):
            reason = runtime.gradients_unsupported if runtime else ""
            if not reason and isolated:
                reason = "a trace from given stages has no gradients"
            expected = reason or f"expected {gradient_stage(0)} for the first token that a recogniser wrote, and so on"
            raise BadInput(f"{NO_STAGE} of {session.model} on {session.runtime} matches {pattern!r}: {expected}")


def make_trace(
    session: Session,
    stages: Mapping[str, np.ndarray],
    glob: str,
    dtype: str,
    options: Mapping[str, Any],
    place: Path | None = None,
    **meta: Any,
) -> Trace:
    """Returns a trace of the stages found, with its `meta`; writes it to a file if `place` is set.

    Args:
        glob: the glob that selected the stages.
        dtype: the type of the arithmetic.
        place: from `output_path`.
        meta: what the stages were computed on, as plain values, such as `input_digest`.

    Raises `BadInput` if no stage was found, or none for a glob that is only for stages inside a layer or gradients.
    """
    _check_inside(session, stages, glob)
    _check_gradients(session, stages, glob, bool(meta.get("isolated")))
    if not stages:
        reason = "; a trace from given stages has no text of the language model" if meta.get("isolated") else ""
        raise BadInput(
            f"{NO_STAGE} of {session.model} on {session.runtime} matches {glob!r}{reason}; '*' takes all stages"
        )
    all_meta = {
        "model": session.model,
        "runtime": session.runtime,
        "dtype": dtype,
        "options": dict(options),
        **meta,
        "versions": versions(),
    }
    trace = Trace(stages, all_meta)
    if place is None:
        return trace
    from workbench.trace.read import read_trace

    report(1.0, f"writing {place.name}")  # the last point to cancel before a file is written
    return read_trace(trace.save(place))
