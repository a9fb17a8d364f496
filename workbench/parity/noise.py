"""Noise or bug: how far reference and candidate are from the reference computed in float64.

Rounding is the distance that the float32 reference itself has. A candidate of the same arithmetic that is about as far
away has only rounded otherwise; one that is much farther computes something else. Of a candidate with coarser
arithmetic, rounding errors are larger in proportion to its unit roundoff, but not beyond what its preset expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.errors import BadInput
from workbench.parity.measures import measure
from workbench.parity.order import computation_order, is_aside, kind_of
from workbench.parity.presets import Preset, preset_of
from workbench.session import StageFilter, Trace

FACTOR = 10.0
"""How many times the reference's distance is still noise: other orders of summation and other approximations of exp and
tanh differ by a few times; a fault that is worth finding is hundreds of times farther."""


@dataclass(frozen=True)
class StageNoise:
    """One stage's distances from float64, as relative L2."""

    stage: str
    reference: float
    candidate: float
    bound: float  # farther than this is a bug
    reference_bound: float  # farther than this, the reference itself is not float32's noise

    @property
    def is_bug(self) -> bool:
        """Whether the candidate is farther from float64 than its arithmetic explains."""
        return not self.candidate <= self.bound

    @property
    def reference_is_off(self) -> bool:
        """Whether the reference is: then it, or the float64 trace, is of another computation."""
        return not self.reference <= self.reference_bound


@dataclass(frozen=True)
class NoiseReport:
    """Every stage that all three traces have, in the order of the computation."""

    stages: tuple[StageNoise, ...]
    preset: Preset  # of the candidate's arithmetic
    isolated: bool = False  # as `Comparison.isolated`

    @property
    def first_bug(self) -> StageNoise | None:
        """The first stage at which the candidate is no longer noise."""
        return next((each for each in self.stages if each.is_bug), None)

    @property
    def sentence(self) -> str:
        """What this comes to, without capital and full stop."""
        off = next((each for each in self.stages if each.reference_is_off), None)
        if off:
            return (
                f"the reference itself is {off.reference:.2g} from float64 at {off.stage}, more than float32 explains, "
                f"so noise cannot be told from a bug"
            )
        if bug := self.first_bug:
            return (
                f"a bug, not noise: at {bug.stage} the candidate is {bug.candidate:.2g} from float64, the reference "
                f"{bug.reference:.2g}"
            )
        # End to end, the last stage has the errors of all.
        shown = max(self.stages, key=lambda each: each.candidate) if self.isolated else self.stages[-1]
        return (
            f"arithmetic noise: at {shown.stage} the candidate is {shown.candidate:.2g} from float64, the reference "
            f"{shown.reference:.2g}"
        )


def noise_or_bug(reference: Trace, candidate: Trace, exact: Trace, stages: str = "*") -> NoiseReport:
    """Both distances from the reference in float64, and which is noise, for every stage of numbers that all three have.

    Stages whose shapes differ count as infinitely far. Raises `BadInput` where there is no such stage, or where the
    third trace says that it was not computed in float64, or on another input, or where one of candidate and third trace
    goes on from the stages of another and the other does not.
    """
    _check(reference.meta, exact.meta)
    isolated = bool(candidate.meta.get("isolated"))
    if isolated != bool(exact.meta.get("isolated")):
        alone, whole = ("candidate", "float64 trace") if isolated else ("float64 trace", "candidate")
        raise BadInput(
            f"the {alone} was computed from given stages and the {whole} end to end; expected both in one way"
        )
    preset, _ = preset_of(candidate.meta)
    base, _ = preset_of(reference.meta)
    wanted = StageFilter(stages)
    found = []
    for stage in computation_order([s for s in reference if wanted(s)], recorded=bool(reference.meta)):
        if is_aside(stage) or stage not in candidate or stage not in exact:
            continue
        truth, near, other = exact[stage], reference[stage], candidate[stage]
        if kind_of(stage, truth) in ("tokens", "text"):
            continue
        one, two = (_distance(truth, side) for side in (near, other))
        # Where the reference happens to be exact, as of copied values, one rounding is allowed all the same.
        noise = FACTOR * max(one, base.roundoff)
        found.append(StageNoise(stage, one, two, _bound(noise, preset, base), FACTOR * base.limits.relative_l2))
    if not found:
        raise BadInput("the three traces have no stage of numbers in common; expected one of the reference in float64")
    return NoiseReport(tuple(found), preset, isolated)


def _bound(noise: float, preset: Preset, base: Preset) -> float:
    if preset.roundoff <= base.roundoff:
        return noise
    return max(noise, min(noise * preset.roundoff / base.roundoff, preset.limits.relative_l2))


def _distance(truth: Any, side: Any) -> float:
    if truth.shape != side.shape:
        return float("inf")
    found = measure(truth, side)
    return float("inf") if found.nonfinite_differences else found.relative_l2


def _check(reference: Mapping[str, Any], exact: Mapping[str, Any]) -> None:
    dtype = exact.get("dtype")
    if isinstance(dtype, str) and dtype.lower().removeprefix("torch.") not in ("float64", "f64", "fp64", "double"):
        raise BadInput(f"the trace to tell noise from bugs by is of {dtype!r:.40}; expected one computed in float64")
    digests = reference.get("input_digest"), exact.get("input_digest")
    if None not in digests and digests[0] != digests[1]:
        raise BadInput("the float64 trace is of another input than the reference; expected the same")
