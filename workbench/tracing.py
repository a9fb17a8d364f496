"""Makes the trace of what a session recorded: the wanted stages, and by whom and of what they were computed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.errors import BadInput
from workbench.progress import report
from workbench.session import Given, Out, Session, Trace
from workbench.stages import Stages
from workbench.trace_file import trace_place
from workbench.versions import versions


def stages_given(given: Given) -> Stages | None:
    """The stages of what a trace is computed from; those of a file are read when they are needed. Raises `BadInput`
    where it is no trace."""
    if given is None or isinstance(given, Trace):
        return given
    from workbench.parity.formats import read_trace

    return read_trace(given)


def place_of(out: Out) -> Path | None:
    """Where a trace is to be written, if anywhere. Raises `BadInput` where that is no place for one."""
    return None if out is None else trace_place(out)


def named(given: Given) -> dict[str, Any]:
    """What the metadata of a trace say of what it was computed from."""
    return {} if given is None else {"isolated": True}


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
        raise BadInput(f"no stage of {session.model} on {session.runtime} matches {asked!r}; see the stages with *")
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
    from workbench.parity.formats import read_trace

    report(1.0, f"writing {place.name}")  # whoever has stopped the call wants no file
    return read_trace(trace.save(place))
