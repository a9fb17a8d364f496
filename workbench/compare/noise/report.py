"""The distances of every stage from float64, which of them noise explains, and the sentence that says so."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.compare.presets import Preset
from workbench.compare.tokens.answers import FOLLOWING

REFERENCE = "the reference"
AT_MOST_SUFFIX = ", at most"  # ends the words for several computations, whose largest distance counts
FLOAT64 = "float64"


@dataclass(frozen=True)
class StageNoise:
    """The distances of one stage from float64, as relative L2: whole stage, median position and worst position."""

    stage: str
    reference: float
    candidate: float
    bound: float  # a larger distance is a bug
    reference_bound: float  # beyond this distance, float32 does not explain the reference itself
    reference_typical: float
    candidate_typical: float
    typical_bound: float  # a larger distance is a bug too
    reference_worst: float
    candidate_worst: float
    worst_bound: float  # a larger distance of the worst position is a bug too
    worst_position: int  # the candidate's worst position
    leads_to: str | None = None  # the next stage beyond its bound, if this stage just before it is near its own bound
    beside: str = REFERENCE  # the name of the side that `reference` and similar fields describe
    reference_channel: float = 0.0  # of the candidate's worst channel, at the median position
    candidate_channel: float = 0.0
    channel_bound: float = math.inf
    worst_channel: int = 0
    reference_steady: float = 0.0  # of the mean error over positions; rounding keeps it small
    candidate_steady: float = 0.0
    steady_bound: float = math.inf
    truth: str = FLOAT64  # what the distances are measured from, in words
    rounding: float = 0.0  # the distance of one rounding, which is always allowed
    of_weights: float = 0.0  # the reference's distance from a truth that has the weights of the candidate's file

    @property
    def is_bug(self) -> bool:
        """Whether the candidate is farther from float64 than its arithmetic explains, or nearly (`LEADING_SHARE`)."""
        return self.leads_to is not None or not (
            self.candidate <= self.bound
            and self.candidate_typical <= self.typical_bound
            and self.candidate_worst <= self.worst_bound
            and self.candidate_channel <= self.channel_bound
            and self.candidate_steady <= self.steady_bound
        )

    @property
    def share(self) -> float:
        """The share of its bound that the candidate takes: the larger of the whole and the median position."""
        return max(self.candidate / self.bound, self.candidate_typical / self.typical_bound)

    @property
    def deciding(self) -> tuple[float, float, float, str]:
        """The candidate's distance, the reference's distance, the bound, and the place in words.

        They belong to the whole stage, or to the median position, worst position or channel that is beyond its bound.
        """
        if self.is_bug and self.candidate <= self.bound:
            decides_by_median = self.leads_to is not None and self.candidate_typical / self.typical_bound == self.share
            if self.candidate_typical > self.typical_bound or decides_by_median:
                return self.candidate_typical, self.reference_typical, self.typical_bound, " at the median position"
            if not self.candidate_channel <= self.channel_bound:
                place = f" in channel {self.worst_channel} at the median position"
                return self.candidate_channel, self.reference_channel, self.channel_bound, place
            if not self.candidate_steady <= self.steady_bound:
                place = " on the mean of all positions"
                return self.candidate_steady, self.reference_steady, self.steady_bound, place
            if self.leads_to is None:
                place = f" at position {self.worst_position}"
                return self.candidate_worst, self.reference_worst, self.worst_bound, place
        return self.candidate, self.reference, self.bound, ""

    @property
    def distances(self) -> str:
        """The distances of both sides, as a phrase."""
        candidate, reference, bound, place = self.deciding
        if math.isinf(candidate):
            return f"{self.stage} of the candidate has another shape, or values that are not finite"
        at_most = "at most " if self.beside.endswith(AT_MOST_SUFFIX) else ""
        phrase = (
            f"at {self.stage} the candidate's distance from {self.truth}{place} is {candidate:.2g}; that of "
            f"{side_of(self.beside)} is {at_most}{reference:.2g}"
        )
        if self.leads_to is None:
            return phrase
        return f"{phrase}; noise explains {bound:.2g} here, and {self.leads_to} is beyond what noise explains"

    @property
    def reference_is_off(self) -> bool:
        """Whether the reference is beyond its bound: then it or the float64 trace belongs to another computation."""
        return not self.reference <= self.reference_bound


def side_of(name: str) -> str:
    """Returns the words for the other side without "at most", which belongs to its distances."""
    return name.removesuffix(AT_MOST_SUFFIX)


@dataclass(frozen=True)
class NoiseReport:
    """The distances of every stage that all three traces have, in the order of the computation."""

    stages: tuple[StageNoise, ...]
    preset: Preset  # the preset of the candidate's arithmetic
    isolated: bool = False  # see `Comparison.isolated`
    coarser: bool = False  # whether the candidate's arithmetic is coarser than that of the other side
    beside: str = REFERENCE  # the other side in words: the reference, or its model in the same precision

    @property
    def first_bug(self) -> StageNoise | None:
        """The first stage at which the candidate's distance is not noise; None if the reference is off before that
        stage.
        """
        first = next((each for each in self.stages if each.is_bug or each.reference_is_off), None)
        return first if first and not first.reference_is_off else None

    @property
    def bugs(self) -> tuple[StageNoise, ...]:
        """All stages at which the candidate's distance is not noise; end to end, those after the first inherit its
        error.
        """
        return tuple(each for each in self.stages if each.is_bug) if self.first_bug else ()

    @property
    def noise(self) -> frozenset[str]:
        """The stages at which a candidate with the reference's arithmetic is as near to float64 as noise explains.

        They count as noise even if they are beyond a tolerance: if a network amplifies rounding, correct kernels may be
        far apart.
        """
        if self.coarser:
            return frozenset()
        stage = self._inaccurate_stage
        stages_before = self.stages[: self.stages.index(stage)] if stage else self.stages
        return frozenset(each.stage for each in stages_before if not each.is_bug)

    @property
    def _inaccurate_stage(self) -> StageNoise | None:
        """The first stage at which the reference is off (see `StageNoise.reference_is_off`); None if there is none."""
        return next((each for each in self.stages if each.reference_is_off), None)

    @property
    def sentence(self) -> str:
        """The conclusion, without capital letter and full stop."""
        if bug := self.first_bug:
            return f"a bug, not noise: {bug.distances}"
        if stage := self._inaccurate_stage:
            side = side_of(self.beside)
            consequence = "so noise cannot be told from a bug"
            if math.isinf(stage.reference):
                return f"{stage.stage} of {side} has another shape, or values that are not finite, {consequence}"
            arithmetic = "float32" if self.beside == REFERENCE else "that precision"
            return (
                f"at {stage.stage} the distance of {side} from float64 is {stage.reference:.2g}, more than "
                f"{arithmetic} explains, {consequence}"
            )
        if self.isolated:
            noisiest = max(self.stages, key=lambda each: each.candidate)
        else:  # the last stage holds the errors of all stages, but the codec of an answer starts again from ids
            noisiest = next((each for each in reversed(self.stages) if each.stage not in FOLLOWING), self.stages[-1])
        return f"arithmetic noise: {noisiest.distances}"
