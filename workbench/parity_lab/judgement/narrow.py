"""Looks inside the first layer in error of a candidate: traces that layer and its inner stages again on both sides.

Each layer costs one more load and one more pass of the reference, of float64, of the same precision if a candidate
needs it, and of each candidate that is wrong there. Only one layer of a candidate is inspected. If that layer belongs
to a decoding step, the caches of all layers after that step are inspected too, because a wrong row of a cache often
shows as an error only in a later layer. In a beam search, the caches of the step before are inspected as well, because
they are reordered.

A trace file of another program cannot be traced again. But it may hold some of the layer's inner stages, and the
reference's inner stages may explain those that it holds. This file knows no runtimes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from workbench.core.errors import BadInput, Cancelled, WorkbenchError
from workbench.core.sides import Side
from workbench.core.visitors import told
from workbench.parity_lab.found import result_or_reason
from workbench.parity_lab.judgement.clean_spread import CleanRuns, needs_clean
from workbench.parity_lab.judgement.sources import Sources, TraceOrReason
from workbench.parity_lab.outcome import Computed, LayerOutcome, Outcome
from workbench.trace.step_names import beam_of, is_choice, step_and_stage
from workbench.trace.subset import TraceSubset
from workbench.trace.trace import StageFilter


class Compute(Protocol):
    """Traces a side."""

    def __call__(self, side: Side, file: str, stages: Sequence[str], *, decoding_steps: str) -> Computed:
        """Returns a trace of the stages that match the globs, in a decoding step if one is given."""
        ...


_IN_LAYER = re.compile(r"(?P<layer>.+\.layers\.[0-9]{1,9})(?:\..+)?")


def layer_in_error(outcome: Outcome) -> str | None:
    """Returns the layer of the first stage in error, such as `encoder.layers.3` or `steps.4.beams.0.llm.layers.1`.

    Any other stage of a decoding step stands for the whole step, `steps.4` or `steps.4.beams.0`. Returns None for the
    rest, and for the choices of a beam search.
    """
    stage = (outcome.verdict.faulty_stage if outcome.verdict else None) or ""
    if is_choice(stage):
        return None
    match = _IN_LAYER.fullmatch(stage)
    step, inner_stage = step_and_stage(stage)
    return match["layer"] if match else None if step is None else stage.removesuffix(f".{inner_stage}")


class LayerInspection:
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
        self._traced: dict[str, TraceOrReason] = {}  # of the reference's side, by file name

    def narrowed(self, side: Side, outcome: Outcome, number: int) -> Outcome:
        """Returns the outcome of a candidate with the inner stages of its first layer in error.

        The outcome stays unchanged if that stage is not in a layer, if the reference is a trace file, or if the
        candidate is one whose stage is explained already or has another shape.
        """
        layer = layer_in_error(outcome)
        if layer is None or self._reference.path is not None or (side.path is not None and not _is_open(outcome)):
            return outcome
        start = time.perf_counter()
        try:
            if side.path is None:
                candidate = self._trace_layer(side, f"candidate-{number}-{layer}", layer)
            else:
                candidate = _part_of(outcome, layer)
            sources = self._sources_of(layer, candidate if needs_clean(side) else None)
            inner_outcome = self._judge(sources, candidate)
        except Cancelled:
            raise
        except WorkbenchError as error:
            inner_outcome = Outcome(outcome.name, "unusable", told(error))
        seconds = time.perf_counter() - start
        is_same = side.path is not None and inner_outcome.faulty_stage == outcome.faulty_stage
        return replace(outcome, inside=LayerOutcome(layer, inner_outcome, seconds, is_same))

    def _sources_of(self, layer: str, candidate: Computed | None) -> Sources:
        """Returns the traces that a candidate is compared with; pass None for a candidate without its own precision.

        Raises the error of the reference.
        """
        reference, reason = self._trace_or_reason(self._reference, f"reference-{layer}", layer)
        if reference is None:
            raise BadInput(reason)
        exact = self._trace_or_reason(self._exact, f"float64-{layer}", layer) if self._exact else (None, "")
        if candidate is None or self._clean is None:
            return Sources(reference, exact)
        return Sources(reference, exact, self._clean.of(candidate.trace, tag=layer, stages=_globs(layer)))

    def _trace_or_reason(self, side: Side, file: str, layer: str) -> TraceOrReason:
        """Returns the trace of a side, or why there is none; later calls with the same file name return the same."""
        if file not in self._traced:
            self._traced[file] = result_or_reason(partial(self._trace_layer, side, file, layer))
        return self._traced[file]

    def _trace_layer(self, side: Side, file: str, layer: str) -> Computed:
        """Traces a layer of a side with its inner stages."""
        return self._compute(side, file, _globs(layer), decoding_steps=",".join(_steps(layer)))


def _is_open(outcome: Outcome) -> bool:
    """Returns whether the first stage in error could be compared, and nothing explains it."""
    assert outcome.comparison and outcome.verdict and outcome.verdict.faulty_stage
    return outcome.verdict.explanation is None and not outcome.comparison[outcome.verdict.faulty_stage].mismatch


def _part_of(outcome: Outcome, layer: str) -> Computed:
    """Returns the stages of a layer that a trace file holds."""
    assert outcome.computed
    trace, is_of_layer = outcome.computed.trace, StageFilter(",".join(_globs(layer)), is_recorded=True)
    # Its precision was judged by all its stages.
    meta = {"dtype": "float32", **trace.meta}
    return replace(outcome.computed, trace=TraceSubset(trace, filter(is_of_layer, trace), meta))


def _globs(layer: str) -> tuple[str, ...]:
    """Returns the globs of a layer and its inner stages; for a decoding step, also of all caches after it."""
    if not layer.startswith("steps."):
        return layer, f"{layer}.*"
    step = ".".join(layer.split(".")[:2])
    if (beam := _beam(layer)) is None:
        return *([layer] if layer != step else []), f"{layer}.*", f"{step}.llm.*.cache.*"
    choices = f"{step}.beams.parents", f"{step}.beams.tokens"
    caches = (f"steps.{each}.beams.*.llm.*.cache.*" for each in _steps(layer)[:-1])
    layer_globs = [layer] if layer != f"{step}.beams.{beam}" else []
    return *layer_globs, f"{layer}.*", f"{step}.beams.{beam}.llm.*.cache.*", *choices, *caches


def _steps(layer: str) -> list[str]:
    """Returns the decoding steps to trace; for a hypothesis also the step before, whose caches it reorders."""
    step = step_and_stage(f"{layer}.x")[0]
    if step is None:
        return []
    return [str(each) for each in (step - 1, step) if each == step or (each and _beam(layer) is not None)]


def _beam(layer: str) -> int | None:
    """Returns the hypothesis that a layer, or the beginning of its stages' names, belongs to; None without a beam
    search.
    """
    return beam_of(f"{layer}.x")
