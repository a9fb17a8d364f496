"""What a candidate is compared with: the reference and, where they can be computed, float64 and the same precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.core.errors import Cancelled, WorkbenchError
from workbench.parity_lab.clean import FoundClean
from workbench.parity_lab.outcome import Computed

Found = tuple[Computed | None, str]
"""A trace, or why there is none."""


@dataclass(frozen=True)
class Sources:
    """The traces that one candidate is compared with."""

    reference: Computed
    exact: Found
    clean: FoundClean = (None, "")  # the same model in the candidate's precision


def found_or_why(compute: Callable[[], Computed]) -> Found:
    """Returns the trace that `compute` makes, or the sentence of its error. A cancel is raised."""
    try:
        return compute(), ""
    except Cancelled:
        raise
    except WorkbenchError as error:
        return None, str(error)
