"""Tells noise from bugs by the distances of reference and candidate from the reference computed in float64.

The distance of the float32 reference is its rounding error. A candidate of the same arithmetic at a similar distance
has only rounded in another way; a candidate much farther away computes something else. For coarser arithmetic, the
allowed rounding error grows with the unit roundoff, up to the limit of its preset. That limit is loose. If the
reference's own model was also computed in the candidate's precision (its *peer*), the peer's distance is the bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.compare.answers import FOLLOWING, SETTINGS, same_answer
from workbench.compare.distances import Distances, by_channel, distances
from workbench.compare.inputs import computed_from, whose_inputs
from workbench.compare.noise_limits import (
    ALONE,
    APART,
    END_TO_END,
    FRONT_END,
    LEADING,
    LEADING_PEER,
    ROUNDED,
    SAME,
    SIMILAR,
    WORST,
    Factors,
)
from workbench.compare.presets import PRESETS, Preset, half_of, preset_of
from workbench.compare.steps import alike_steps
from workbench.core.errors import BadInput
from workbench.trace.cuts import cut_like
from workbench.trace.order import computation_order, is_aside, kind_of
from workbench.trace.trace import StageFilter, Trace

REFERENCE = "the reference"
EXACT = "float64"
MIDDLE = 0.67  # median / root mean square of the absolute value of normally distributed errors


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
    truth: str = EXACT  # what the distances are measured from, in words
    rounding: float = 0.0  # the distance of one rounding, which is always allowed

    @property
    def is_bug(self) -> bool:
        """Whether the candidate is farther from float64 than its arithmetic explains, or close to it (`LEADING`)."""
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
            near = self.leads_to is not None and self.candidate_typical / self.typical_bound == self.share
            if self.candidate_typical > self.typical_bound or near:
                return self.candidate_typical, self.reference_typical, self.typical_bound, " at the median position"
            if not self.candidate_channel <= self.channel_bound:
                where = f" in channel {self.worst_channel} at the median position"
                return self.candidate_channel, self.reference_channel, self.channel_bound, where
            if not self.candidate_steady <= self.steady_bound:
                where = " on the mean of all positions"
                return self.candidate_steady, self.reference_steady, self.steady_bound, where
            if self.leads_to is None:
                where = f" at position {self.worst_position}"
                return self.candidate_worst, self.reference_worst, self.worst_bound, where
        return self.candidate, self.reference, self.bound, ""

    @property
    def distances(self) -> str:
        """The distances of both sides, as a phrase."""
        candidate, reference, bound, where = self.deciding
        if math.isinf(candidate):
            return f"{self.stage} of the candidate has another shape, or values that are not finite"
        said = (
            f"at {self.stage} the candidate is {candidate:.2g} from {self.truth}{where}, {self.beside} {reference:.2g}"
        )
        if self.leads_to is None:
            return said
        return f"{said}, which is near the {bound:.2g} that noise explains, and beyond that from {self.leads_to} on"

    @property
    def reference_is_off(self) -> bool:
        """Whether the reference is beyond its bound: then it or the float64 trace belongs to another computation."""
        return not self.reference <= self.reference_bound


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
        held = self.stages[: self.stages.index(self._off)] if self._off else self.stages
        return frozenset(each.stage for each in held if not each.is_bug)

    @property
    def _off(self) -> StageNoise | None:
        """The first stage at which the reference is off (see `StageNoise.reference_is_off`); None if there is none."""
        return next((each for each in self.stages if each.reference_is_off), None)

    @property
    def sentence(self) -> str:
        """The conclusion, without capital letter and full stop."""
        if bug := self.first_bug:
            return f"a bug, not noise: {bug.distances}"
        if off := self._off:
            return (
                f"{self.beside} itself is {off.reference:.2g} from float64 at {off.stage}, more than "
                f"{'float32' if self.beside == REFERENCE else 'that precision'} explains, so noise cannot be told from "
                "a bug"
            )
        if self.isolated:
            shown = max(self.stages, key=lambda each: each.candidate)
        else:  # the last stage holds the errors of all stages, but the codec of an answer starts again from ids
            shown = next((each for each in reversed(self.stages) if each.stage not in FOLLOWING), self.stages[-1])
        return f"arithmetic noise: {shown.distances}"


def noise_or_bug(
    reference: Trace, candidate: Trace, exact: Trace, stages: str = "*", peer: Trace | None = None
) -> NoiseReport:
    """Returns the distances of both sides from float64, and which are noise, for each stage of numbers that all have.

    Args:
        peer: the reference's own model computed in the candidate's half precision, with every step rounded (`workbench
            trace --dtype bfloat16 --stepwise`). It then takes the reference's place.

    Stages with different shapes count as infinitely far. Raises `BadInput` if there is no such stage, if the third
    trace says that it was not computed in float64 or has another input, or if it was not computed from the same stages
    as the trace that it judges.
    """
    check_exact(reference.meta, exact.meta)
    isolated = check_alone(reference, candidate, exact)
    reference, candidate, _ = alike_steps(reference, candidate)
    reference, exact = cut_like(reference, candidate), cut_like(exact, candidate)
    peer = None if peer is None else cut_like(peer, candidate)
    if peer is not None:
        _check_peer(peer, candidate, exact)
    yardstick, beside = (reference, REFERENCE) if peer is None else (peer, f"this model in {peer.meta['dtype']}")
    preset, _ = preset_of(candidate.meta)
    base, _ = preset_of(yardstick.meta)
    wanted, usual = StageFilter(stages, held=True), SAME if peer is not None else ALONE if isolated else END_TO_END
    found = []
    least_of_all = base.roundoff * (1 if peer is None else ROUNDED)
    # The error of the candidate's front end, which float64 does not judge, enters all later stages.
    entering = least_of_all
    alike = isolated or same_answer(reference, candidate, exact, yardstick)
    for stage in computation_order([s for s in reference if wanted(s)], recorded=bool(reference.meta)):
        if is_aside(stage) or any(stage not in each for each in (candidate, exact, yardstick)):
            continue
        truth, near, other = exact[stage], yardstick[stage], candidate[stage]
        if kind_of(stage, truth) in ("tokens", "streams", "text", "logprobs") or stage in SETTINGS:
            continue
        if not alike and (stage in FOLLOWING or stage.startswith("answer.")):
            continue  # another answer, which `workbench.compare.answers` judges
        ours, theirs = (distances(truth, side) for side in (near, other))
        factors = usual.of(len(truth) if truth.ndim else 1)
        # Quantisation does not affect the front end, which has no weights.
        own = base if stage.startswith("frontend.") and candidate.meta.get("quantization") else preset
        least = entering if truth.dtype.itemsize >= 8 else max(FRONT_END, least_of_all)
        # If the reference happens to be exact, such as copied values, one rounding is still allowed.
        bound, typical_bound = (
            _bound(factor * max(distance, least), own, base)
            for factor, distance in (
                (factors.whole, ours.whole),
                (factors.typical if truth.ndim > 1 else factors.whole, ours.typical),
            )
        )
        worst_bound = factors.worst * max(ours.worst, least)
        if peer is None:
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
                beside=beside,
                rounding=least,
                **(
                    {} if peer is None else farthest_channel(truth, [near], other, theirs, ours.typical, least, factors)
                ),
            )
        )
        if truth.dtype.itemsize < 8 and not isolated and not found[-1].is_bug:
            entering = max(entering, theirs.whole)
    if not found:
        raise BadInput("the three traces have no stage of numbers in common; expected one of the reference in float64")
    if not isolated:
        lead_to_first(found, LEADING if peer is None else LEADING_PEER)
    return NoiseReport(tuple(found), preset, isolated, preset.roundoff > base.roundoff, beside)


def farthest_channel(
    truth: np.ndarray,
    near: Sequence[np.ndarray],
    other: np.ndarray,
    theirs: Distances,
    typical: float,
    least: float,
    factors: Factors,
    apart: float = APART,
) -> dict[str, Any]:
    """Returns the channel in which the candidate is farthest relative to clean sides, as fields of a `StageNoise`.

    Args:
        truth: the stage in float64.
        near: the stage of clean sides in the candidate's precision; the farthest of them counts for each channel.
        other: the stage of the candidate.
        theirs: the candidate's distances.
        typical: the largest distance of the clean sides' median position.
        least: the error of one rounding, which is always allowed.
        apart: how far a channel may stand out (see `APART`).
    """
    far, sides = by_channel(truth, other), [by_channel(truth, each) for each in near]
    known = [each for each in sides if each is not None]
    if far is None or len(known) < len(sides) or math.isinf(theirs.whole):
        return {}
    one = np.max(known, axis=0)
    one = np.maximum(one, max(float(np.median(one)), MIDDLE * least))  # no channel counts as exact by chance
    farther = min(max(theirs.typical / max(typical, least), 1.0), SIMILAR)
    times = far / one
    worst = int(times.argmax())
    usual = np.log(np.maximum(times, 1e-9))
    middle = float(np.median(usual))
    spread = float(np.median(np.abs(usual - middle))) / MIDDLE
    most = min(factors.channel * farther, math.exp(middle + max(apart * spread, math.log(2.0))))
    return {
        "reference_channel": float(one[worst]),
        "candidate_channel": float(far[worst]),
        "channel_bound": most * float(one[worst]),
        "worst_channel": worst,
    }


def lead_to_first(found: list[StageNoise], share: float) -> None:
    """Marks the stages just before the first bug that are near their own bounds as bugs."""
    first = next((place for place, each in enumerate(found) if each.is_bug), 0)
    place = first
    while place and found[place - 1].share > share:
        place -= 1
        found[place] = replace(found[place], leads_to=found[first].stage)


def _most_off(preset: Preset) -> float:
    """Returns the allowed relative L2 of one position. With few bits, it may exceed 1 at a position of small values."""
    most = WORST * preset.limits.relative_l2
    return most if preset.limits.relative_l2 >= PRESETS["q4"].limits.relative_l2 else min(most, 1.0)


def _bound(noise: float, preset: Preset, base: Preset) -> float:
    if preset.roundoff <= base.roundoff:
        return noise
    return max(noise, min(noise * preset.roundoff / base.roundoff, preset.limits.relative_l2))


def check_alone(reference: Trace, candidate: Trace, exact: Trace) -> bool:
    """Returns whether each stage is judged alone.

    Raises `BadInput` if the float64 trace was not computed in the same way as the trace that it judges.
    """
    whose = whose_inputs(reference, candidate)
    if whose == "candidate" and computed_from(exact, candidate):
        return True
    judged = "reference" if whose == "candidate" else "candidate"
    if bool(whose) != bool(exact.meta.get("isolated")) or whose == "candidate":
        alone, whole = (judged, "float64 trace") if whose else ("float64 trace", judged)
        raise BadInput(
            f"the {alone} was computed from substituted stages and the {whole} end to end, or from other stages; "
            "expected the same for both (workbench trace --dtype float64, with the same --given, or without)"
        )
    return bool(whose)


def _check_peer(peer: Trace, candidate: Trace, exact: Trace) -> None:
    """Raises `BadInput` unless both have the same half precision, the same input and the same way of computation."""
    named = [half_of(trace.meta) for trace in (peer, candidate)]
    if named[0] is None or named[0] != named[1]:
        said = [f"{trace.meta.get('quantization') or trace.meta.get('dtype')!s:.40}" for trace in (peer, candidate)]
        raise BadInput(
            f"the trace in the same precision has {said[0]} and the candidate {said[1]}; expected both in "
            "bfloat16, or both in float16"
        )
    digests = peer.meta.get("input_digest"), exact.meta.get("input_digest")
    if None not in digests and digests[0] != digests[1]:
        raise BadInput(
            "the trace in the same precision and the float64 trace have different inputs; expected the same input"
        )
    if bool(peer.meta.get("isolated")) != bool(exact.meta.get("isolated")):
        raise BadInput(
            "the trace in the same precision and the float64 trace were computed differently: one from substituted "
            "stages, one end to end; expected the same for both"
        )


def check_exact(reference: Mapping[str, Any], exact: Mapping[str, Any]) -> None:
    """Raises `BadInput` if a trace's metadata do not fit float64, or name another input than the reference's."""
    dtype = exact.get("dtype")
    if isinstance(dtype, str) and dtype.lower().removeprefix("torch.") not in ("float64", "f64", "fp64", "double"):
        raise BadInput(
            f"the trace that tells noise from bugs states the dtype {dtype!r:.40}; expected one computed in float64"
        )
    digests = reference.get("input_digest"), exact.get("input_digest")
    if None not in digests and digests[0] != digests[1]:
        raise BadInput("the float64 trace and the reference have different inputs; expected the same input")
