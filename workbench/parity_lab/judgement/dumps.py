"""Judges a dump of another program stage by stage: the reference is computed from the dump's own stages.

A program that cannot substitute stages can still take part in an isolated run. The reference computes each stage from
the dump's stage before it, so each stage shows only the dump's own error. This file knows no runtimes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench.compare.precision import are_in
from workbench.compare.presets import half_precision_of, preset_of
from workbench.core.errors import BadInput
from workbench.core.sides import Side
from workbench.parity_lab.found import result_or_reason
from workbench.parity_lab.judgement.clean_spread import CleanRuns
from workbench.parity_lab.judgement.sources import Sources, TraceOrReason
from workbench.parity_lab.outcome import Computed, Outcome
from workbench.trace.cuts import cuts_of
from workbench.trace.mapping import StageMapping
from workbench.trace.read import read_trace
from workbench.trace.recorder import can_stand_for
from workbench.trace.subset import TraceSubset
from workbench.trace.trace import Trace

_USED_METADATA = ("input_digest", "steps")  # metadata of a dump that a computation from its stages needs


def is_dump(side: Side, mapping: StageMapping | None) -> bool:
    """Returns whether a side is a trace file that was computed end to end."""
    if side.path is None:
        return False
    try:
        return not read_trace(side.path, mapping).meta.get("isolated")
    except BadInput:
        return False  # the run reports it


def substitutes(dump: Trace, reference: Trace) -> Trace:
    """Returns the stages of a dump that the reference can continue from: whole stages of numbers in its shapes.

    If the front end or the prompt of the dump has another number of rows, all later stages may have it. A stage of
    another shape is only compared. Raises `BadInput` if no stage is left.
    """
    cut = cuts_of(dump)
    stages, other_rows = [], False
    for stage in (stage for stage in reference if stage in dump and stage not in cut):
        array, shape = dump[stage], reference[stage].shape
        rows = array.shape[:1] if other_rows and array.ndim == len(shape) else shape[:1]
        if array.dtype.kind != "U" and can_stand_for(stage, array, (*rows, *shape[1:])):
            stages.append(stage)
            other_rows = other_rows or array.shape != shape
    if not stages:
        names = ", ".join(list(dump)[:5]) or "none"
        raise BadInput(
            f"no stage of the dump has the name and the shape of one of the reference's (it has {names}); expected "
            "some for an isolated run: name them in a mapping, or compare end to end"
        )
    return TraceSubset(dump, stages, {key: value for key, value in dump.meta.items() if key in _USED_METADATA})


class BeforeRounding(TraceSubset):
    """The stages of a dump in 16 bits, with a front end that its rounding may have begun with.

    Programs compute the front end in float32. If a dump holds it in 16 bits, each stage was computed from the values
    before they were rounded, and CMVN amplifies that rounding. Other networks round what they compute, so the clean
    computations in that type have the same rounding in all other stages.
    """

    def __init__(self, trace: Trace, half_precision: str):
        super().__init__(trace, trace)
        self._half_precision = half_precision

    def __getitem__(self, stage: str) -> np.ndarray:
        array = super().__getitem__(stage)
        if not stage.startswith("frontend.") or array.dtype.kind != "f" or array.dtype.itemsize > 4:
            return array
        values = np.asarray(array, np.float32)
        if not are_in(values, self._half_precision):
            return array
        step = np.ldexp(preset_of({"dtype": self._half_precision})[0].roundoff, np.frexp(values)[1])
        return values + (np.random.default_rng(0).uniform(-0.5, 0.5, values.shape) * step).astype(np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        return BeforeRounding, (self._trace, self._half_precision)


class DumpJudge:
    """Judges the dumps of a run.

    Args:
        compute: traces a side into a file with a name, `given` the file of the stages to continue from.
        save: returns the file into which it has written a trace.
        substitutes: returns the stages of a dump to continue from (`substitutes`).
        judge: returns the outcome of a candidate's trace, compared with the sources.
        reference: must be a side that can be traced; `reference_trace` is its trace end to end.
        exact: the reference in float64; None if float64 is not used.
        clean: computes the clean spread of a dump's precision; None if it is not used.
    """

    def __init__(
        self,
        compute: Callable[..., Computed],
        save: Callable[[Trace, str], Path],
        substitutes: Callable[[Trace, Trace], Trace],
        judge: Callable[[Sources, Computed], Outcome],
        reference: Side,
        reference_trace: Trace,
        exact: Side | None,
        clean: CleanRuns | None,
    ):
        self._compute, self._save, self._judge = compute, save, judge
        self._substitutes = substitutes
        self._reference, self._reference_trace, self._exact, self._clean = reference, reference_trace, exact, clean
        self.exact: TraceOrReason = (None, "")  # of the last dump

    def judged(self, dump: Computed, file: str) -> Outcome:
        """Returns the outcome of a dump; raises the errors of the reference's computation."""
        given = self._save(self._substitutes(dump.trace, self._reference_trace), f"{file}-stages")
        reference = self._compute(self._reference, f"reference-for-{file}", given=given)
        if self._exact is not None:
            self.exact = self._result_or_reason(self._exact, f"float64-for-{file}", given)
        clean = (
            self._clean.of(dump.trace, f"for-{file}", given=self._clean_inputs(dump, given, file))
            if self._clean
            else (None, "")
        )
        return self._judge(Sources(reference, self.exact, clean), dump)

    def _clean_inputs(self, dump: Computed, given: Path, file: str) -> Path:
        """Returns the file of the stages from which the clean computations of a dump continue."""
        half_precision = half_precision_of(dump.trace.meta)
        if half_precision is None:
            return given
        return self._save(BeforeRounding(read_trace(given), half_precision), f"{file}-clean-stages")

    def _result_or_reason(self, side: Side, file: str, given: Path) -> TraceOrReason:
        return result_or_reason(partial(self._compute, side, file, given=given))
