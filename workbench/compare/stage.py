"""One stage of two traces: its measures, its limits, and the limits that it would pass."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.compare.guesses.guess import Hint, units_of
from workbench.compare.hints import explain_shape, shapes, where_it_differs, where_not_finite, whole_numbers
from workbench.compare.measures import Measures, measure
from workbench.compare.presets import PRESETS, Limits
from workbench.compare.tokens.discrete import (
    SequenceMeasures,
    as_text,
    as_tokens,
    explain_tokens,
    is_in_batch,
    measure_text,
    measure_tokens,
)
from workbench.compare.tokens.logits import LogitMeasures, explain_logits, measure_logits
from workbench.compare.tokens.logprobs import STAGE as LOGPROBS
from workbench.compare.tokens.logprobs import LogprobMeasures, measure_logprobs
from workbench.compare.tokens.streams import StreamMeasures, as_streams, explain_streams, measure_streams
from workbench.core.errors import BadInput
from workbench.speech.layout import SpeechLayout
from workbench.trace.order import Kind, kind_of
from workbench.trace.trace import Trace

PROMPT = "prompt.tokens"


@dataclass(frozen=True)
class LimitViolation:
    """A measure beyond its limit."""

    measure: str
    value: float
    limit: float


@dataclass(frozen=True)
class StageComparison:
    """The result for one stage.

    Of `numbers`, `logits`, `sequence`, `streams` and `logprobs`, only those of its kind are set.
    """

    stage: str
    kind: Kind
    shapes: tuple[tuple[int, ...], tuple[int, ...]]  # of reference and candidate
    dtypes: tuple[str, str]
    limits: Limits
    numbers: Measures | None = None
    logits: LogitMeasures | None = None
    sequence: SequenceMeasures | None = None
    streams: StreamMeasures | None = None
    logprobs: LogprobMeasures | None = None
    mismatch: str | None = None  # why the stage could not be measured
    rule: str = ""  # of a mapping file, which gives the candidate the reference's shape
    hint: str | None = None  # what may have happened
    explanation: Hint | None = None  # what explains the numbers to within rounding (`workbench.compare.explain`)
    # sqrt(e^2 - f^2) with e the relative L2 of this stage and f that of the previous one; 0 if e < f; e if isolated.
    own: float | None = None
    before: float | None = None  # f; None without an earlier stage of numbers, and if isolated
    near_tie: bool = False  # whether a choice of a beam search differs, and both choices score nearly the same
    jump: float | None = None  # e / f, both raised to the floor; largest where the error grows most

    @property
    def growth(self) -> float | None:
        """The error of this stage divided by that of the previous one; None if that one has none."""
        if not self.before or self.numbers is None:
            return None
        return self.numbers.relative_l2 / self.before

    @property
    def measured(self) -> dict[str, float]:
        """The measures that have a limit, by name."""
        values: dict[str, float] = {}
        if self.numbers:
            names = ("relative_l2", "peak", "cosine_distance")
            values |= {name: getattr(self.numbers, name) for name in names}
        if self.logits:
            values |= {"kl": self.logits.kl_mean, "top1": self.logits.top1_agreement}
        if self.logprobs:
            values["logprob"] = self.logprobs.worst
        if self.streams:
            values["token_errors"] = self.streams.error_rate
        if self.sequence:
            values["text_errors" if self.kind == "text" else "token_errors"] = self.sequence.error_rate
        return values

    @property
    def differs(self) -> bool:
        """Whether anything is different."""
        if self.mismatch:
            return True
        if self.sequence:
            return self.sequence.first_difference is not None
        if self.streams:
            return self.streams.errors > 0
        if self.logprobs:
            return self.logprobs.worst > 0
        return self.numbers is not None and not self.numbers.identical

    @property
    def beyond(self) -> tuple[LimitViolation, ...]:
        """The measures beyond their limits; empty if the stage passes or could not be measured."""
        return tuple(self._violations(self.limits))

    @property
    def passes(self) -> bool:
        """Whether the stage is within its limits: same shape, finite in the same places, no measure beyond."""
        return self._passes(self.limits)

    @property
    def passing_preset(self) -> str | None:
        """The strictest preset that the stage would pass; None if there is none."""
        return next((name for name, preset in PRESETS.items() if self._passes(preset.for_stage(self.stage))), None)

    @property
    def passing_limits(self) -> dict[str, float]:
        """The tightest limits that the stage would pass, rounded up to two digits; empty if no limits would do."""
        if self.mismatch or (self.numbers and self.numbers.nonfinite_differences):
            return {}
        return {
            name: _rounded(value, up=name != "top1") for name, value in self.measured.items() if math.isfinite(value)
        }

    def _passes(self, limits: Limits) -> bool:
        is_unmeasurable = self.mismatch or (self.numbers and self.numbers.nonfinite_differences)
        return not is_unmeasurable and not self._violations(limits)

    def _violations(self, limits: Limits) -> list[LimitViolation]:
        violations = []
        for name, value in self.measured.items():
            limit = getattr(limits, name)
            if name == "top1" and self.logits:
                # One row may differ, or a single flip in ten rows would count as a tenth.
                exceeds = (limit >= 1 and value < 1) or self.logits.flips > max(1, (1 - limit) * self.logits.rows)
            else:
                exceeds = not value <= limit
            if exceeds:
                violations.append(LimitViolation(name, value, limit))
        return violations


def _rounded(value: float, up: bool) -> float:
    """Returns a value rounded to two significant digits, in the direction that still passes."""
    if abs(value) < sys.float_info.min:  # too small for two digits
        return value if up else 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    steps = math.ceil(value / step) if up else math.floor(value / step)
    rounded = float(f"{steps * step:.1e}")
    return (
        rounded
        if (rounded >= value if up else rounded <= value)
        else float(f"{(steps + (1 if up else -1)) * step:.1e}")
    )


def compare_stage(
    stage: str,
    reference: np.ndarray,
    candidate: np.ndarray,
    limits: Limits,
    guess: bool = True,
    layout: SpeechLayout | None = None,
) -> StageComparison:
    """Returns the comparison of one stage of a candidate with the reference's.

    The arrays may have different shapes; the comparison then says so, and has no measures.

    Args:
        guess: whether to search for an explanation if the numbers are beyond the limits; doubles the time.
        layout: of the vocabulary, for streams of its ids.

    Raises `BadInput` if the reference holds no finite number, or if either side holds what its stage cannot hold.
    """
    kinds = kind_of(stage, reference), kind_of(stage, candidate)
    kind = _common_kind(stage, kinds)
    fields: dict[str, Any] = {
        "stage": stage,
        "kind": kind,
        "shapes": (reference.shape, candidate.shape),
        "dtypes": tuple("text" if array.dtype.kind == "U" else array.dtype.name for array in (reference, candidate)),
        "limits": limits,
    }
    if kind == "text":
        return _compare_texts(fields, reference, candidate)
    if kind == "tokens":
        return _compare_tokens(fields, reference, candidate, guess)
    if kind == "streams":
        return _compare_streams(fields, reference, candidate, layout)
    return _compare_numbers(fields, reference, candidate, guess)


def _compare_texts(fields: dict[str, Any], reference: np.ndarray, candidate: np.ndarray) -> StageComparison:
    stage = fields["stage"]
    try:
        texts = as_text(stage, reference), as_text(stage, candidate)
    except BadInput as error:
        contents = [_content_in_words(array) for array in (reference, candidate)]
        expected = "one string, or bytes of UTF-8," if stage == "text" else "numbers, or one string,"
        raise BadInput(
            f"stage {stage} holds {contents[0]} in the reference and {contents[1]} in the candidate; expected "
            f"{expected} in both"
        ) from error
    return StageComparison(**fields, sequence=measure_text(*texts))


def _compare_tokens(
    fields: dict[str, Any], reference: np.ndarray, candidate: np.ndarray, guess: bool
) -> StageComparison:
    stage = fields["stage"]
    ids = as_tokens(f"{stage} of the reference", reference), as_tokens(f"{stage} of the candidate", candidate)
    if is_in_batch(ids[0], candidate):
        mismatch, rule = explain_shape(ids[0], candidate)
        return StageComparison(**fields, mismatch=mismatch, rule=rule)
    hint = explain_tokens(*ids) if guess and stage == PROMPT else None  # the verdict tells about other tokens
    return StageComparison(**fields, sequence=measure_tokens(*ids), hint=hint)


def _compare_streams(
    fields: dict[str, Any], reference: np.ndarray, candidate: np.ndarray, layout: SpeechLayout | None
) -> StageComparison:
    stage = fields["stage"]
    ids = as_streams(f"{stage} of the reference", reference), as_streams(f"{stage} of the candidate", candidate)
    if ids[0].shape[1] != ids[1].shape[1]:
        mismatch = f"the shapes are {shapes(reference, candidate)}: the numbers of streams differ"
        return StageComparison(**fields, mismatch=mismatch)
    measured = measure_streams(*ids)
    hint = explain_streams(*ids, layout) if measured.errors else None
    return StageComparison(**fields, streams=measured, hint=hint)


def _compare_numbers(
    fields: dict[str, Any], reference: np.ndarray, candidate: np.ndarray, guess: bool
) -> StageComparison:
    """Compares arrays of numbers: activations, or logits."""
    stage, kind, limits = fields["stage"], fields["kind"], fields["limits"]
    for array, side in ((reference, "reference"), (candidate, "candidate")):
        if array.dtype.kind not in "biufc":
            raise BadInput(f"stage {stage} of the {side} holds {array.dtype}; expected numbers")
    if reference.shape != candidate.shape:
        mismatch, rule = explain_shape(reference, candidate)
        return StageComparison(**fields, mismatch=mismatch, rule=rule)
    numbers = measure(reference, candidate)
    if reference.size and numbers.reference_nonfinite == reference.size:
        raise BadInput(f"stage {stage} of the reference holds no finite number; nothing can be compared with it")
    hint = None
    if guess and not StageComparison(**fields, numbers=numbers).passes:
        hint = explain_logits(reference, candidate) if kind == "logits" else None
        units = units_of(stage, reference.ndim)
        if numbers.nonfinite_differences:
            hint = where_not_finite(reference, candidate, numbers.relative_l2, limits.relative_l2, units)
        hint = (
            hint or whole_numbers(reference, candidate, numbers) or where_it_differs(numbers, limits.relative_l2, units)
        )
    logits = measure_logits(reference, candidate) if kind == "logits" else None
    return StageComparison(**fields, numbers=numbers, logits=logits, hint=hint)


def compare_logprobs(reference: Trace, candidate: Trace, limits: Limits) -> StageComparison:
    """Compares the log-probabilities of the tokens that two traces report (see `workbench.compare.tokens.logprobs`)."""
    return logprobs_compared(LOGPROBS, reference, candidate, limits, measure_logprobs(reference, candidate))


def logprobs_compared(
    stage: str, reference: Trace, candidate: Trace, limits: Limits, measured: LogprobMeasures, hint: str | None = None
) -> StageComparison:
    """Returns the comparison of a stage of log-probabilities whose differences have been measured."""
    arrays = reference[stage], candidate[stage]
    return StageComparison(
        stage=stage,
        kind="logprobs",
        shapes=(arrays[0].shape, arrays[1].shape),
        dtypes=(arrays[0].dtype.name, arrays[1].dtype.name),
        limits=limits,
        logprobs=measured,
        hint=hint,
    )


def _common_kind(stage: str, kinds: tuple[Kind, Kind]) -> Kind:
    """Returns the kind as which two arrays are compared.

    Whole numbers against other numbers are numbers, unless the name says tokens.
    """
    if "text" in kinds:
        return "text"
    if kinds[0] == kinds[1] or stage.rpartition(".")[2] == "tokens":
        return kinds[0]
    return next(kind for kind in kinds if kind != "tokens")


def _content_in_words(array: np.ndarray) -> str:
    if array.dtype.kind not in "US":
        return f"{array.dtype} of shape {array.shape}"
    return "a text" if array.size == 1 else f"{array.size} texts"
