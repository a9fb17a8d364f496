"""Noise or bug: how far reference and candidate are from the reference computed in float64.

Rounding is the distance that the float32 reference itself has. A candidate of the same arithmetic that is about as far
away has only rounded otherwise; one that is much farther computes something else. Of a candidate with coarser
arithmetic, rounding errors are larger in proportion to its unit roundoff, but not beyond what its preset expects. That
lets much pass; where the reference's own model was computed in the candidate's precision too, its *peer*, the candidate
is held to the distance that this one has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.compare.distances import Distances, by_channel, distances
from workbench.compare.inputs import goes_on_from, whose_inputs
from workbench.compare.presets import PRESETS, Preset, half_of, preset_of
from workbench.core.errors import BadInput
from workbench.trace.order import computation_order, is_aside, kind_of
from workbench.trace.trace import StageFilter, Trace

REFERENCE = "the reference"
_MIDDLE = 0.67  # of errors that are normally distributed, the median over the root mean square
_FEW = 10  # positions at which the factors are twice those of many, or more


@dataclass(frozen=True)
class Factors:
    """How many times the reference's distance from float64 is still noise."""

    whole: float  # of the stage's relative L2
    typical: float  # of that of its median position
    worst: float = math.inf  # of that of its worst position
    channel: float = math.inf  # of a channel's at the median position, see `by_channel`

    def of(self, positions: int) -> Factors:
        """The factors for a stage of so many positions.

        Of few, the reference's own distance is a draw of few: by chance it is several times smaller than usual. In
        recordings of a third of a second, of 5 to 12 frames, right kernels were up to 22 times the reference's
        distance, where attention amplified the rounding of one frame.
        """
        more = 1 + _FEW / max(positions, 1)
        one = (1.6 * _FEW / max(positions, 1)) ** 2
        return Factors(self.whole * (more + one), self.typical * more, self.worst * (more + one), self.channel * more)


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

SAME = Factors(8.0, 2.6, 12.0, 4.5)
"""Where the reference's own model was computed in the candidate's half precision too, each step rounded by itself.

In float32, right kernels differ by how they sum. In half precision they all round the same weights, and sum in float32;
what they differ by is which steps they round. Measured with 600 ports of the demo models in bfloat16 and float16
(`tests.support.ports`), of recordings and prompts of 20 to 139 positions, with 14,760 stages: at most 2.7 times the
peer's distance at the median position, 3 times for 99.9 % of the wholes, 7 times where attention amplified one, and
channels at most 83 % of their bound. A port that rounds the mean or the variance inside a norm is none of them.
"""

ROUNDED = 0.42
"""The root mean square of the relative errors of one rounding, over the unit roundoff: what a stage that happens to be
exact in the peer may be off. Errors are uniform in half a step on either side, and values in one binade are up to twice
as large: sqrt(1/3) times the root mean square of 1/m for m evenly in 1 to 2, which is sqrt(1/2)."""

SIMILAR = 2.5
"""How many times farther a candidate may be at the median position than its peer and have all its channels excused by
that: where attention amplifies rounding, it does in every channel."""

APART = 7.0
"""By how many deviations, of the logarithms of all channels' multiples of their peer's, one may be farther, and twice
at least. One wrong row of a matrix is one channel that stands out, however little that is of the whole. Right kernels
were at most 5.3 deviations apart."""

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

LEADING_PEER = 0.85
"""The same, held against a peer, whose bounds are narrower."""

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
    beside: str = REFERENCE  # what `reference` and its like are of, in words
    reference_channel: float = 0.0  # at the median position, of the candidate's worst channel
    candidate_channel: float = 0.0
    channel_bound: float = math.inf
    worst_channel: int = 0

    @property
    def is_bug(self) -> bool:
        """Whether the candidate is farther from float64 than its arithmetic explains, or about to be (`LEADING`)."""
        return self.leads_to is not None or not (
            self.candidate <= self.bound
            and self.candidate_typical <= self.typical_bound
            and self.candidate_worst <= self.worst_bound
            and self.candidate_channel <= self.channel_bound
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
            if not self.candidate_channel <= self.channel_bound:
                where = f" in channel {self.worst_channel} at the median position"
                return self.candidate_channel, self.reference_channel, self.channel_bound, where
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
        said = f"at {self.stage} the candidate is {candidate:.2g} from float64{where}, {self.beside} {reference:.2g}"
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
    coarser: bool = False  # whether that arithmetic is coarser than that of what it is held against
    beside: str = REFERENCE  # what it is held against, in words: the reference, or its model in the same precision

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
                f"{self.beside} itself is {off.reference:.2g} from float64 at {off.stage}, more than "
                f"{'float32' if self.beside == REFERENCE else 'that precision'} explains, so noise cannot be told from "
                "a bug"
            )
        # End to end, the last stage has the errors of all.
        shown = max(self.stages, key=lambda each: each.candidate) if self.isolated else self.stages[-1]
        return f"arithmetic noise: {shown.distances}"


def noise_or_bug(
    reference: Trace, candidate: Trace, exact: Trace, stages: str = "*", peer: Trace | None = None
) -> NoiseReport:
    """Both distances from the reference in float64, and which is noise, for every stage of numbers that all three have.

    Args:
        peer: the reference's own model computed in the candidate's half precision, each step rounded by itself
            (`workbench trace --dtype bfloat16 --stepwise`). It then stands in the reference's place.

    Stages whose shapes differ count as infinitely far. Raises `BadInput` where there is no such stage, where the third
    trace says that it was not computed in float64, or on another input, or where it was not computed from the same
    stages as what it is to judge.
    """
    _check(reference.meta, exact.meta)
    isolated = _alone(reference, candidate, exact)
    if peer is not None:
        _check_peer(peer, candidate, exact)
    yardstick, beside = (reference, REFERENCE) if peer is None else (peer, f"this model in {peer.meta['dtype']}")
    preset, _ = preset_of(candidate.meta)
    base, _ = preset_of(yardstick.meta)
    wanted, usual = StageFilter(stages), SAME if peer is not None else ALONE if isolated else END_TO_END
    found = []
    least_of_all = base.roundoff * (1 if peer is None else ROUNDED)
    entering = least_of_all  # what the candidate's front end, which float64 does not judge, leaves to all that follows
    for stage in computation_order([s for s in reference if wanted(s)], recorded=bool(reference.meta)):
        if is_aside(stage) or any(stage not in each for each in (candidate, exact, yardstick)):
            continue
        truth, near, other = exact[stage], yardstick[stage], candidate[stage]
        if kind_of(stage, truth) in ("tokens", "text", "logprobs"):
            continue
        ours, theirs = (distances(truth, side) for side in (near, other))
        factors = usual.of(len(truth) if truth.ndim else 1)
        # Quantised weights leave the front end, which has none, as exact as it is.
        own = base if stage.startswith("frontend.") and candidate.meta.get("quantization") else preset
        least = entering if truth.dtype.itemsize >= 8 else max(FRONT_END, least_of_all)
        # Where the reference happens to be exact, as of copied values, one rounding is allowed all the same.
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
                **({} if peer is None else _channels(truth, near, other, ours, theirs, least, factors)),
            )
        )
        if truth.dtype.itemsize < 8 and not isolated and not found[-1].is_bug:
            entering = max(entering, theirs.whole)
    if not found:
        raise BadInput("the three traces have no stage of numbers in common; expected one of the reference in float64")
    if not isolated:
        _lead(found, LEADING if peer is None else LEADING_PEER)
    return NoiseReport(tuple(found), preset, isolated, preset.roundoff > base.roundoff, beside)


def _channels(
    truth: np.ndarray,
    near: np.ndarray,
    other: np.ndarray,
    ours: Distances,
    theirs: Distances,
    least: float,
    factors: Factors,
) -> dict[str, Any]:
    """The channel in which the candidate is farthest beside its peer, as fields of a `StageNoise`."""
    one, far = by_channel(truth, near), by_channel(truth, other)
    if one is None or far is None or math.isinf(theirs.whole):
        return {}
    one = np.maximum(one, max(float(np.median(one)), _MIDDLE * least))  # a channel that happens to be near says nothing
    farther = min(max(theirs.typical / max(ours.typical, least), 1.0), SIMILAR)
    times = far / one
    worst = int(times.argmax())
    usual = np.log(np.maximum(times, 1e-9))
    middle = float(np.median(usual))
    spread = float(np.median(np.abs(usual - middle))) / _MIDDLE
    most = min(factors.channel * farther, math.exp(middle + max(APART * spread, math.log(2.0))))
    return {
        "reference_channel": float(one[worst]),
        "candidate_channel": float(far[worst]),
        "channel_bound": most * float(one[worst]),
        "worst_channel": worst,
    }


def _lead(found: list[StageNoise], share: float) -> None:
    """Has the stages just before the first bug that are near their own bounds count as bugs."""
    first = next((place for place, each in enumerate(found) if each.is_bug), 0)
    place = first
    while place and found[place - 1].share > share:
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


def _check_peer(peer: Trace, candidate: Trace, exact: Trace) -> None:
    """Raises `BadInput` unless both have the same half precision, and were computed on one input in one way."""
    named = [half_of(trace.meta) for trace in (peer, candidate)]
    if named[0] is None or named[0] != named[1]:
        said = [f"{trace.meta.get('quantization') or trace.meta.get('dtype')!s:.40}" for trace in (peer, candidate)]
        raise BadInput(
            f"the trace in the same precision is of {said[0]} and the candidate of {said[1]}; expected both in "
            "bfloat16, or both in float16"
        )
    digests = peer.meta.get("input_digest"), exact.meta.get("input_digest")
    if None not in digests and digests[0] != digests[1]:
        raise BadInput("the trace in the same precision is of another input than the float64 trace; expected the same")
    if bool(peer.meta.get("isolated")) != bool(exact.meta.get("isolated")):
        raise BadInput(
            "of the trace in the same precision and the float64 trace, one was computed from given stages and one end "
            "to end; expected both in one way"
        )


def _check(reference: Mapping[str, Any], exact: Mapping[str, Any]) -> None:
    dtype = exact.get("dtype")
    if isinstance(dtype, str) and dtype.lower().removeprefix("torch.") not in ("float64", "f64", "fp64", "double"):
        raise BadInput(f"the trace to tell noise from bugs by is of {dtype!r:.40}; expected one computed in float64")
    digests = reference.get("input_digest"), exact.get("input_digest")
    if None not in digests and digests[0] != digests[1]:
        raise BadInput("the float64 trace is of another input than the reference; expected the same")
