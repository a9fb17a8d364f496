"""Determines whether the stages of one trace were computed from the other's stages.

A trace with substituted stages of another trace (`workbench trace --given`) shows the error of each stage alone when it
is compared with that other trace. It may be the candidate, or, if the candidate's runtime cannot substitute stages, the
reference.
"""

from __future__ import annotations

from typing import Literal

from workbench.trace.recorder import stage_digest
from workbench.trace.trace import Trace

InputSide = Literal["reference", "candidate"]


def side_of_inputs(reference: Trace, candidate: Trace) -> InputSide | None:
    """Returns whose inputs both sides computed their stages from; None if each used its own values throughout."""
    if candidate.meta.get("isolated"):
        return "reference"
    return "candidate" if computed_from(reference, candidate) else None


def computed_from(trace: Trace, source: Trace) -> bool:
    """Returns whether a trace was computed from the stages of `source`, by the digests that it names."""
    digests = trace.meta.get("given")
    if not trace.meta.get("isolated") or not isinstance(digests, dict) or not digests:
        return False
    return all(stage in source and stage_digest(source[stage]) == digest for stage, digest in digests.items())
