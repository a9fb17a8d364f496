"""Tells noise from bugs in low precision by the *clean spread*: how far correct computations lie from float64.

The reference's own model is computed several times in the candidate's precision, each time with another order of its
sums. The largest distance of these from float64, of every stage on this very input, is what rounding explains; a
candidate that is clearly farther computes something else. A candidate with quantised weights is measured from float64
with the very same weights, dequantised from its file, so that only the rounding of activations remains.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.compare.noise.distances import distances, steady
from workbench.compare.noise.inputs import check_alone, check_exact
from workbench.compare.noise.judged_stages import AllowedRounding, judged_stages
from workbench.compare.noise.limits import CLEAN_CHANNEL_DEVIATIONS, CLEAN_FACTORS, PEER_LEADING_SHARE, ROUNDING_RMS
from workbench.compare.noise.noise_or_bug import farthest_channel, lead_to_first
from workbench.compare.noise.report import AT_MOST_SUFFIX, FLOAT64, NoiseReport, StageNoise
from workbench.compare.presets import half_precision_of, preset_of
from workbench.compare.tokens.answers import same_answer
from workbench.compare.tokens.steps import with_common_steps
from workbench.core.errors import BadInput
from workbench.trace.cuts import cut_like
from workbench.trace.trace import Trace

ORDERS = 5  # clean computations that a run makes
OF_FLOAT32 = 5e-7  # distance of other libraries' sinusoids, exp and sums in float32, for stages where ours are exact
DEVIATIONS = 6.0  # deviations of the logarithms from which a mean over positions is not chance


@dataclass(frozen=True)
class Clean:
    """Clean computations of the reference's model in a candidate's precision."""

    traces: Sequence[Trace]
    exact: Trace  # in float64, with the weights of the candidate's file where these are quantised
    precision: str  # in words, such as `bfloat16` or `the weights of model-q8_0.gguf`
    same_weights: bool = False  # whether `exact` has the weights of the candidate's file

    @property
    def beside(self) -> str:
        """The clean computations in words."""
        orders = f"in {len(self.traces)} orders of summation" if len(self.traces) > 1 else "with one order of summation"
        preposition = "with" if self.same_weights else "in"
        return f"this model {preposition} {self.precision} {orders}{AT_MOST_SUFFIX}"

    @property
    def truth(self) -> str:
        """What distances are from, in words."""
        return f"{FLOAT64} with the same weights" if self.same_weights else FLOAT64


def noise_by_spread(reference: Trace, candidate: Trace, clean: Clean, stages: str = "*") -> NoiseReport:
    """Returns the distances of the candidate and of the clean computations from float64, and which are noise.

    Stages with different shapes count as infinitely far. Raises `BadInput` if there are no clean computations, if no
    stage of numbers is in all traces, or as `noise_or_bug`.
    """
    if not clean.traces:
        raise BadInput("there is no computation in the candidate's precision; expected at least one")
    check_exact(reference.meta, clean.exact.meta)
    isolated = check_alone(reference, candidate, clean.exact)
    reference, candidate, _ = with_common_steps(reference, candidate)
    exact = cut_like(clean.exact, candidate)
    reference = cut_like(reference, candidate)
    traces = [cut_like(each, candidate) for each in clean.traces]
    preset, _ = preset_of(candidate.meta)
    half_precision = half_precision_of(clean.traces[0].meta)
    min_rounding = ROUNDING_RMS * preset_of({"dtype": half_precision})[0].roundoff if half_precision else OF_FLOAT32
    same_answers = isolated or same_answer(reference, candidate, exact, *traces)
    allowed = AllowedRounding(min_rounding, isolated)
    stage_noises = list[StageNoise]()
    for stage, truth in judged_stages(stages, exact, exact, (candidate, *traces), same_answers):
        clean_stages = [each[stage] for each in traces]
        roundings = allowed.for_stage(truth), allowed.for_mean(truth)
        stage_noises.append(
            replace(
                _stage_noise(stage, truth, candidate[stage], clean_stages, roundings, clean, preset.limits.relative_l2),
                of_weights=_of_weights(stage, truth, reference) if clean.same_weights else 0.0,
            )
        )
        if not stage_noises[-1].is_bug:
            allowed.enter(truth, stage_noises[-1].candidate)
    if not stage_noises:
        raise BadInput("the traces have no stage of numbers in common; expected one of the reference in float64")
    if not isolated:
        lead_to_first(stage_noises, PEER_LEADING_SHARE)
    return NoiseReport(tuple(stage_noises), preset, isolated, False, clean.beside)


def _stage_noise(
    stage: str,
    truth: Any,
    candidate_stage: Any,
    clean_stages: Sequence[Any],
    roundings: tuple[float, float],
    clean: Clean,
    limit: float,
) -> StageNoise:
    min_rounding, rounding_of_mean = roundings
    clean_distances, candidate_distances = (
        [distances(truth, each) for each in clean_stages],
        distances(truth, candidate_stage),
    )
    factors = CLEAN_FACTORS.for_positions(len(truth) if truth.ndim else 1)
    whole, typical, worst = (
        max(max(getattr(each, name) for each in clean_distances), min_rounding)
        for name in ("whole", "typical", "worst")
    )
    means = [max(steady(truth, each), rounding_of_mean) for each in clean_stages]
    return StageNoise(
        stage=stage,
        reference=max(each.whole for each in clean_distances),
        candidate=candidate_distances.whole,
        bound=factors.whole * whole,
        reference_bound=max(10 * limit, 1.0),  # the spread is measured, so this limit only refuses nonsense
        reference_typical=max(each.typical for each in clean_distances),
        candidate_typical=candidate_distances.typical,
        typical_bound=(factors.typical if truth.ndim > 1 else factors.whole) * typical,
        reference_worst=max(each.worst for each in clean_distances),
        candidate_worst=candidate_distances.worst,
        worst_bound=factors.worst * worst,
        worst_position=candidate_distances.position,
        beside=clean.beside,
        truth=clean.truth,
        rounding=min_rounding,
        reference_steady=max(means),
        candidate_steady=steady(truth, candidate_stage),
        steady_bound=max(factors.steady * max(means), _beyond_chance(means)),
        **farthest_channel(
            stage,
            truth,
            clean_stages,
            candidate_stage,
            candidate_distances,
            typical,
            min_rounding,
            factors,
            CLEAN_CHANNEL_DEVIATIONS,
        ),
    )


def _of_weights(stage: str, truth: Any, reference: Trace) -> float:
    """Returns how far the weights of a file alone move a stage; 0 if the reference does not show that."""
    distance = distances(truth, reference[stage]).whole if stage in reference else 0.0
    return distance if math.isfinite(distance) else 0.0


def _beyond_chance(values: Sequence[float]) -> float:
    """Returns the distance that clean computations do not reach, by the spread of their logarithms; 0 for exact or
    single ones, and for those of another shape.

    If a few directions carry all errors of a stage, such as those of logits, the mean over positions varies widely.
    """
    if len(values) < 2 or min(values) <= 0 or not all(map(math.isfinite, values)):
        return 0.0
    logs = [math.log(value) for value in values]
    return math.exp(statistics.mean(logs) + DEVIATIONS * statistics.stdev(logs))
