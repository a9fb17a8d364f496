"""Noise or bug: how far reference and candidate are from the reference computed in float64.

Rounding is the distance that the float32 reference itself has. A candidate of the same arithmetic that is about as far
away has only rounded otherwise; one that is much farther computes something else. Of a candidate with coarser
arithmetic, rounding errors are larger in proportion to its unit roundoff, but not beyond what its preset expects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.errors import BadInput
from workbench.parity.inputs import goes_on_from, whose_inputs
from workbench.parity.measures import as_table, measure
from workbench.parity.order import computation_order, is_aside, kind_of
from workbench.parity.presets import PRESETS, Preset, preset_of
from workbench.session import StageFilter, Trace

_SMALL = 0.01  # of the usual size: relative errors of smaller positions say nothing
_FEW = 10  # positions at which the factors are twice those of many, or more


@dataclass(frozen=True)
class Factors:
    """How many times the reference's distance from float64 is still noise."""

    whole: float  # of the stage's relative L2
    typical: float  # of that of its median position

    def of(self, positions: int) -> Factors:
        """The factors for a stage of so many positions.

        Of few, the reference's own distance is a draw of few: by chance it is several times smaller than usual. In
        recordings of a third of a second, of 5 to 12 frames, right kernels were up to 22 times the reference's
        distance, where attention amplified the rounding of one frame.
        """
        more = 1 + _FEW / max(positions, 1)
        one = (1.6 * _FEW / max(positions, 1)) ** 2
        return Factors(self.whole * (more + one), self.typical * more)


END_TO_END = Factors(5.0, 4.0)
"""Where errors add up: rounding otherwise, right kernels differ by a few times.

Measured with 9,000 stages of PyTorch in two layouts of weights and with one and two threads, of ggml and of vLLM, all
in float32, on the demo models with all short recordings, 40 small models of random weights and a SenseVoice of the
published size: at most 2.8 times the reference's distance, 3.0 times at the median position, 99.9 % below 2.0. Few
positions, where a network amplifies whatever comes in, make the largest; the median does not see them, so that it tells
a small change of all positions, such as another epsilon, from noise.
"""

ALONE = Factors(4.0, 2.5)
"""Where each stage is computed from the reference's own inputs, likewise: at most 2.5 times in 5,000 stages, 1.5 times
at the median position."""

WORST = 10.0
"""How many times the relative L2 that a candidate's preset lets pass one position may be off, and of finer types than
blocks of 4 bits never more than all of itself: among many positions one that is wrong, as of a swapped token, changes
the whole by little.

Right kernels were at most once its preset's limit off in float32, twice in float16 and in blocks of 4 bits, four times
in blocks of 8.
"""

LEADING = 0.6
"""The share of its bound from which a stage just before a bug is one itself, end to end. A fault that is barely within
its bound grows in the stages after it, and the first beyond theirs is not where it is. Shares of noise are rarely as
large, and hardly ever just there."""

FRONT_END = 1e-6
"""The distance of a float32 reference from float64 where a trace in float64 has a stage in float32, as it has those of
the front end. Filter banks of the shipped recordings are 5e-7 from their definition in float64, features after CMVN,
whose values are smaller, twice as far."""


@dataclass(frozen=True)
class StageNoise:
    """One stage's distances from float64, as relative L2: of all of it, of its median position and of its worst."""

    stage: str
    reference: float
    candidate: float
    bound: float  # farther than this is a bug
    reference_bound: float  # farther than this, the reference itself is not float32's noise
    reference_typical: float
    candidate_typical: float
    typical_bound: float  # farther than this is a bug too
    reference_worst: float
    candidate_worst: float
    worst_bound: float  # and farther than this
    worst_position: int  # of the candidate
    leads_to: str | None = None  # the stage that is beyond its bound, where this one comes near its own just before

    @property
    def is_bug(self) -> bool:
        """Whether the candidate is farther from float64 than its arithmetic explains, or about to be (`LEADING`)."""
        return self.leads_to is not None or not (
            self.candidate <= self.bound
            and self.candidate_typical <= self.typical_bound
            and self.candidate_worst <= self.worst_bound
        )

    @property
    def share(self) -> float:
        """How much of its bound the candidate takes: of that of the whole, or of that of the median position."""
        return max(self.candidate / self.bound, self.candidate_typical / self.typical_bound)

    @property
    def deciding(self) -> tuple[float, float, float, str]:
        """The candidate's distance, the reference's and the bound, and of what, in words: of the whole, or of what else
        is too far, the median position or one."""
        if self.is_bug and self.candidate <= self.bound:
            near = self.leads_to is not None and self.candidate_typical / self.typical_bound == self.share
            if self.candidate_typical > self.typical_bound or near:
                return self.candidate_typical, self.reference_typical, self.typical_bound, " at the median position"
            if self.leads_to is None:
                where = f" at position {self.worst_position}"
                return self.candidate_worst, self.reference_worst, self.worst_bound, where
        return self.candidate, self.reference, self.bound, ""

    @property
    def distances(self) -> str:
        """How far both are, in words."""
        candidate, reference, bound, where = self.deciding
        if math.isinf(candidate):
            return f"{self.stage} of the candidate has another shape, or values that are not finite"
        said = f"at {self.stage} the candidate is {candidate:.2g} from float64{where}, the reference {reference:.2g}"
        if self.leads_to is None:
            return said
        return f"{said}, which is near the {bound:.2g} that noise explains, and beyond that from {self.leads_to} on"

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
    coarser: bool = False  # whether that arithmetic is coarser than the reference's

    @property
    def first_bug(self) -> StageNoise | None:
        """The first stage at which the candidate is no longer noise; None where the reference is not noise by then."""
        first = next((each for each in self.stages if each.is_bug or each.reference_is_off), None)
        return first if first and not first.reference_is_off else None

    @property
    def bugs(self) -> tuple[StageNoise, ...]:
        """All stages at which the candidate is no longer noise; end to end, those after the first inherit its error."""
        return tuple(each for each in self.stages if each.is_bug) if self.first_bug else ()

    @property
    def noise(self) -> frozenset[str]:
        """The stages at which a candidate of arithmetic like the reference's is as near to float64 as that explains,
        whatever a tolerance says of them: where a network amplifies rounding, right kernels may be far apart."""
        if self.coarser:
            return frozenset()
        held = self.stages[: self.stages.index(self._off)] if self._off else self.stages
        return frozenset(each.stage for each in held if not each.is_bug)

    @property
    def _off(self) -> StageNoise | None:
        """The first stage at which the reference is of another computation."""
        return next((each for each in self.stages if each.reference_is_off), None)

    @property
    def sentence(self) -> str:
        """What this comes to, without capital and full stop."""
        if bug := self.first_bug:
            return f"a bug, not noise: {bug.distances}"
        if off := self._off:
            return (
                f"the reference itself is {off.reference:.2g} from float64 at {off.stage}, more than float32 explains, "
                f"so noise cannot be told from a bug"
            )
        # End to end, the last stage has the errors of all.
        shown = max(self.stages, key=lambda each: each.candidate) if self.isolated else self.stages[-1]
        return f"arithmetic noise: {shown.distances}"


def noise_or_bug(reference: Trace, candidate: Trace, exact: Trace, stages: str = "*") -> NoiseReport:
    """Both distances from the reference in float64, and which is noise, for every stage of numbers that all three have.

    Stages whose shapes differ count as infinitely far. Raises `BadInput` where there is no such stage, where the third
    trace says that it was not computed in float64, or on another input, or where it was not computed from the same
    stages as what it is to judge.
    """
    _check(reference.meta, exact.meta)
    isolated = _alone(reference, candidate, exact)
    preset, _ = preset_of(candidate.meta)
    base, _ = preset_of(reference.meta)
    wanted, usual = StageFilter(stages), ALONE if isolated else END_TO_END
    found = []
    entering = base.roundoff  # what the candidate's front end, which float64 does not judge, leaves to all that follows
    for stage in computation_order([s for s in reference if wanted(s)], recorded=bool(reference.meta)):
        if is_aside(stage) or stage not in candidate or stage not in exact:
            continue
        truth, near, other = exact[stage], reference[stage], candidate[stage]
        if kind_of(stage, truth) in ("tokens", "text", "logprobs"):
            continue
        ours, theirs = (_distances(truth, side) for side in (near, other))
        factors = usual.of(len(truth) if truth.ndim else 1)
        # Quantised weights leave the front end, which has none, as exact as it is.
        own = base if stage.startswith("frontend.") and candidate.meta.get("quantization") else preset
        least = entering if truth.dtype.itemsize >= 8 else max(FRONT_END, base.roundoff)
        # Where the reference happens to be exact, as of copied values, one rounding is allowed all the same.
        bound, typical_bound = (
            _bound(factor * max(distance, least), own, base)
            for factor, distance in (
                (factors.whole, ours.whole),
                (factors.typical if truth.ndim > 1 else factors.whole, ours.typical),
            )
        )
        worst_bound = max(factors.whole * max(ours.worst, least), _most_off(own))
        found.append(
            StageNoise(
                stage=stage,
                reference=ours.whole,
                candidate=theirs.whole,
                bound=bound,
                reference_bound=factors.whole * base.limits.relative_l2,
                reference_typical=ours.typical,
                candidate_typical=theirs.typical,
                typical_bound=typical_bound,
                reference_worst=ours.worst,
                candidate_worst=theirs.worst,
                worst_bound=worst_bound,
                worst_position=theirs.position,
            )
        )
        if truth.dtype.itemsize < 8 and not isolated and not found[-1].is_bug:
            entering = max(entering, theirs.whole)
    if not found:
        raise BadInput("the three traces have no stage of numbers in common; expected one of the reference in float64")
    if not isolated:
        _lead(found)
    return NoiseReport(tuple(found), preset, isolated, preset.roundoff > base.roundoff)


def _lead(found: list[StageNoise]) -> None:
    """Has the stages just before the first bug that are near their own bounds count as bugs."""
    first = next((place for place, each in enumerate(found) if each.is_bug), 0)
    place = first
    while place and found[place - 1].share > LEADING:
        place -= 1
        found[place] = replace(found[place], leads_to=found[first].stage)


def _most_off(preset: Preset) -> float:
    """How far one position may be off. In few bits a position of small values may be off by more than all of itself."""
    most = WORST * preset.limits.relative_l2
    return most if preset.limits.relative_l2 >= PRESETS["q4"].limits.relative_l2 else min(most, 1.0)


def _bound(noise: float, preset: Preset, base: Preset) -> float:
    if preset.roundoff <= base.roundoff:
        return noise
    return max(noise, min(noise * preset.roundoff / base.roundoff, preset.limits.relative_l2))


@dataclass(frozen=True)
class _Distances:
    whole: float
    typical: float
    worst: float
    position: int = 0  # that is worst


def _distances(truth: Any, side: Any) -> _Distances:
    """Relative L2 of a side's difference from the truth: of all, of the median position that is not all zeros, and of
    the worst, positions a hundred times smaller than usual counting as just that small.

    Of few values, such as one for each position, no position is told from the whole.
    """
    if truth.shape != side.shape:
        return _Distances(math.inf, math.inf, math.inf)
    found = measure(truth, side)
    whole = math.inf if found.nonfinite_differences else found.relative_l2
    if truth.ndim < 2 or not found.values or math.isinf(whole):
        return _Distances(whole, whole, whole)
    rows = as_table(truth).reshape(len(truth), -1)
    sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64) / rows.shape[1])
    shown = np.isfinite(sizes) & (sizes > 0)
    if not shown.any():
        return _Distances(whole, whole, whole)
    typical = float(np.median(found.by_position[shown] / sizes[shown]))
    relative = np.where(shown, found.by_position / np.maximum(sizes, _SMALL * found.reference_rms), 0.0)
    worst = int(relative.argmax())
    return _Distances(whole, typical, float(relative[worst]), worst)


def _alone(reference: Trace, candidate: Trace, exact: Trace) -> bool:
    """Whether each stage is judged alone. Raises `BadInput` where float64 was not computed as what it judges was."""
    whose = whose_inputs(reference, candidate)
    if whose == "candidate" and goes_on_from(exact, candidate):
        return True
    told = "reference" if whose == "candidate" else "candidate"
    if bool(whose) != bool(exact.meta.get("isolated")) or whose == "candidate":
        alone, whole = (told, "float64 trace") if whose else ("float64 trace", told)
        raise BadInput(
            f"the {alone} was computed from given stages and the {whole} end to end, or from others; expected both in "
            "one way (workbench trace --dtype float64, with the same --given, or without)"
        )
    return bool(whose)


def _check(reference: Mapping[str, Any], exact: Mapping[str, Any]) -> None:
    dtype = exact.get("dtype")
    if isinstance(dtype, str) and dtype.lower().removeprefix("torch.") not in ("float64", "f64", "fp64", "double"):
        raise BadInput(f"the trace to tell noise from bugs by is of {dtype!r:.40}; expected one computed in float64")
    digests = reference.get("input_digest"), exact.get("input_digest")
    if None not in digests and digests[0] != digests[1]:
        raise BadInput("the float64 trace is of another input than the reference; expected the same")
