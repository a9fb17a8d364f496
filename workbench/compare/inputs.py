"""From whose inputs the stages of two traces were computed, where that was not each from its own.

A trace that goes on from the stages of another one (`workbench trace --given`) shows the error of each stage alone,
held against that other one. It may be the candidate, or, where the candidate cannot be computed like that, the
reference.
"""

from __future__ import annotations

from typing import Literal

from workbench.trace.recorder import stage_digest
from workbench.trace.trace import Trace

Whose = Literal["reference", "candidate"]


def whose_inputs(reference: Trace, candidate: Trace) -> Whose | None:
    """Whose inputs both were computed from, stage by stage; None where each went on from its own values to the end."""
    if candidate.meta.get("isolated"):
        return "reference"
    return "candidate" if goes_on_from(reference, candidate) else None


def goes_on_from(trace: Trace, other: Trace) -> bool:
    """Whether a trace was computed from the stages of the other one: whether these are those it names."""
    given = trace.meta.get("given")
    if not trace.meta.get("isolated") or not isinstance(given, dict) or not given:
        return False
    return all(stage in other and stage_digest(other[stage]) == digest for stage, digest in given.items())
