"""Looks inside the first layer in error of a candidate: traces that layer again on both sides, with what is inside it.

Each layer costs one more load and one more pass of the reference, of float64, of the same precision where a candidate
needs it, and of each candidate that is wrong there. Only one layer of a candidate is looked into. This file knows no
runtimes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from workbench.core.errors import BadInput, Cancelled, WorkbenchError
from workbench.core.sides import Side
from workbench.parity_lab.clean import CleanRuns, needs_clean
from workbench.parity_lab.outcome import Computed, Inside, Outcome
from workbench.parity_lab.sources import Found, Sources, found_or_why

Compute = Callable[[Side, str, Sequence[str]], Computed]
"""Takes a side, the name of a file and globs of stages; returns the trace."""

_IN_LAYER = re.compile(r"(?P<layer>.+\.layers\.[0-9]{1,9})(?:\..+)?")


def layer_in_error(outcome: Outcome) -> str | None:
    """Returns the layer of the first stage in error, such as `encoder.layers.3`; None if it is not of a layer."""
    stage = outcome.verdict.faulty_stage if outcome.verdict else None
    found = _IN_LAYER.fullmatch(stage or "")
    return found["layer"] if found else None


class Narrowing:
    """Looks inside layers; traces of the reference's side are computed once for each layer.

    Args:
        compute: traces a side.
        judge: returns the outcome of a candidate's trace, compared with the sources.
        reference: must be a side that can be traced.
        exact: the reference in float64; None if float64 is not used.
        clean: computes the clean spread of a candidate's precision; None if it is not used.
    """

    def __init__(
        self,
        compute: Compute,
        judge: Callable[[Sources, Computed], Outcome],
        reference: Side,
        exact: Side | None,
        clean: CleanRuns | None,
    ):
        self._compute, self._judge = compute, judge
        self._reference, self._exact, self._clean = reference, exact, clean
        self._traced: dict[str, Found] = {}  # of the reference's side, by file name

    def narrowed(self, side: Side, outcome: Outcome, number: int) -> Outcome:
        """Returns the outcome of a candidate with what is inside its first layer in error.

        It stays as it is if that stage is not of a layer, or if a side is a trace file, which cannot be traced again.
        """
        layer = layer_in_error(outcome)
        if layer is None or side.path is not None or self._reference.path is not None:
            return outcome
        begun = time.perf_counter()
        try:
            candidate = self._compute(side, f"candidate-{number}-{layer}", _globs(layer))
            sources = self._sources_of(layer, candidate if needs_clean(side) else None)
            found = self._judge(sources, candidate)
        except Cancelled:
            raise
        except WorkbenchError as error:
            found = Outcome(outcome.name, "unusable", str(error))
        return replace(outcome, inside=Inside(layer, found, time.perf_counter() - begun))

    def _sources_of(self, layer: str, candidate: Computed | None) -> Sources:
        """Returns what a candidate is compared with; None for one without a precision of its own.

        Raises the error of the reference.
        """
        reference, why = self._once(self._reference, f"reference-{layer}", layer)
        if reference is None:
            raise BadInput(why)
        exact = self._once(self._exact, f"float64-{layer}", layer) if self._exact else (None, "")
        if candidate is None or self._clean is None:
            return Sources(reference, exact)
        return Sources(reference, exact, self._clean.of(candidate.trace, tag=layer, stages=_globs(layer)))

    def _once(self, side: Side, file: str, layer: str) -> Found:
        """Returns the trace of a side, or why there is none, as from the first call with this file name."""
        if file not in self._traced:
            self._traced[file] = found_or_why(partial(self._compute, side, file, _globs(layer)))
        return self._traced[file]


def _globs(layer: str) -> tuple[str, str]:
    """Returns the globs of a layer and of what is inside it."""
    return layer, f"{layer}.*"
