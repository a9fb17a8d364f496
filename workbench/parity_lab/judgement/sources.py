"""The traces that a candidate is compared with: the reference and, if they can be computed, float64 and the same
precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.parity_lab.judgement.clean_spread import CleanOrReason
from workbench.parity_lab.outcome import Computed

TraceOrReason = tuple[Computed | None, str]
"""A trace, or why there is none."""


@dataclass(frozen=True)
class Sources:
    """The traces that one candidate is compared with."""

    reference: Computed
    exact: TraceOrReason
    clean: CleanOrReason = (None, "")  # the same model in the candidate's precision
