"""Makes the trace of what a session recorded: the wanted stages, and by whom and of what they were computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.progress import report
from workbench.session.protocols import Session
from workbench.system.versions import versions
from workbench.trace.recorder import stage_digest
from workbench.trace.trace import Given, Out, Trace
from workbench.trace.write import trace_place


class StagesGiven(Mapping[str, np.ndarray]):
    """The stages of what a trace is computed from; those of a file are read when they are asked for."""

    def __init__(self, trace: Trace):
        self._trace = trace
        self.used: dict[str, str] = {}  # digests of the stages that have been asked for

    def __getitem__(self, stage: str) -> np.ndarray:
        array = self._trace[stage]
        self.used[stage] = stage_digest(array)
        return array

    def __contains__(self, stage: object) -> bool:
        return stage in self._trace

    def __iter__(self) -> Iterator[str]:
        return iter(self._trace)

    def __len__(self) -> int:
        return len(self._trace)


def stages_given(given: Given, digest: str) -> StagesGiven | None:
    """The stages of what a trace is computed from, if it is given any.

    Args:
        digest: of the input.

    Raises `BadInput` where it is no trace, or says that it is of another input.
    """
    if given is None:
        return None
    from workbench.trace.read import read_trace

    trace = given if isinstance(given, Trace) else read_trace(given)
    other = trace.meta.get("input_digest")
    if other is not None and other != digest:
        raise BadInput(
            f"the trace to compute from is of another input (digest {other!s:.32}, of this one {digest}); expected a "
            "trace of the same input"
        )
    return StagesGiven(trace)


def place_of(out: Out) -> Path | None:
    """Where a trace is to be written, if anywhere. Raises `BadInput` where that is no place for one."""
    return None if out is None else trace_place(out)


def named(given: StagesGiven | None) -> dict[str, Any]:
    """What the metadata of a trace say of what it was computed from: the digests of the stages it went on from, which
    `workbench.compare.inputs` knows that trace by. Raises `BadInput` where nothing of it was used.
    """
    if given is None:
        return {}
    if not given.used:
        held = ", ".join(list(given)[:5]) or "none"
        raise BadInput(
            f"the trace to compute from has none of the stages of this pass (it has {held}); expected a trace of this "
            "model"
        )
    return {"isolated": True, "given": dict(given.used)}


def trace_of(
    session: Session,
    found: Mapping[str, np.ndarray],
    asked: str,
    dtype: str,
    options: Mapping[str, Any],
    place: Path | None = None,
    **of: Any,
) -> Trace:
    """A trace of the stages found, with what its `meta` has to say; in a file where there is a place for one.

    Args:
        asked: the glob that the stages were chosen by.
        dtype: of the arithmetic.
        place: as `place_of` gives it.
        of: what was computed on, plain values for `meta`: `input_digest` and the like.

    Raises `BadInput` where no stage was found.
    """
    if not found:
        whole = "; what a language model writes is none of a trace from given stages" if of.get("isolated") else ""
        raise BadInput(
            f"no stage of {session.model} on {session.runtime} matches {asked!r}{whole}; see the stages with *"
        )
    meta = {
        "model": session.model,
        "runtime": session.runtime,
        "dtype": dtype,
        "options": dict(options),
        **of,
        "versions": versions(),
    }
    trace = Trace(found, meta)
    if place is None:
        return trace
    from workbench.trace.read import read_trace

    report(1.0, f"writing {place.name}")  # whoever has stopped the call wants no file
    return read_trace(trace.save(place))
