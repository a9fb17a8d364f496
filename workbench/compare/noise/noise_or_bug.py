"""Tells noise from bugs by the distances of reference and candidate from the reference computed in float64.

The distance of the float32 reference is its rounding error. A candidate of the same arithmetic at a similar distance
has only rounded in another way; a candidate much farther away computes something else. For coarser arithmetic, the
allowed rounding error grows with the unit roundoff, up to the limit of its preset. That limit is loose. If the
reference's own model was also computed in the candidate's precision (its *peer*), the peer's distance is the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.compare.noise.distances import Distances, by_channel, distances
from workbench.compare.noise.inputs import check_alone, check_exact, check_peer
from workbench.compare.noise.judged_stages import AllowedRounding, has_channels, judged_stages
from workbench.compare.noise.limits import (
    CHANNEL_DEVIATIONS,
    END_TO_END_FACTORS,
    ISOLATED_FACTORS,
    LEADING_SHARE,
    MAX_CHANNEL_WIDENING,
    PEER_FACTORS,
    PEER_LEADING_SHARE,
    POSITION_FACTOR,
    ROUNDING_RMS,
    Factors,
)
from workbench.compare.noise.report import REFERENCE, NoiseReport, StageNoise
from workbench.compare.presets import PRESETS, Preset, preset_of
from workbench.compare.tokens.answers import same_answer
from workbench.compare.tokens.steps import with_common_steps
from workbench.core.errors import BadInput
from workbench.trace.cuts import cut_like
from workbench.trace.trace import Trace

MEDIAN_OVER_RMS = 0.67  # median / root mean square of the absolute value of normally distributed errors


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
    reference, candidate, _ = with_common_steps(reference, candidate)
    reference, exact = cut_like(reference, candidate), cut_like(exact, candidate)
    other_side = _comparison_side(reference, candidate, exact, peer, isolated)
    same_answers = isolated or same_answer(reference, candidate, exact, other_side.trace)
    allowed = AllowedRounding(other_side.rounding, isolated)
    stage_noises = list[StageNoise]()
    for stage, truth in judged_stages(stages, reference, exact, (candidate, other_side.trace), same_answers):
        stage_noises.append(_stage_noise(stage, truth, candidate, other_side, allowed.for_stage(truth)))
        if not stage_noises[-1].is_bug:
            allowed.enter(truth, stage_noises[-1].candidate)
    if not stage_noises:
        raise BadInput("the three traces have no stage of numbers in common; expected one of the reference in float64")
    if not isolated:
        lead_to_first(stage_noises, LEADING_SHARE if peer is None else PEER_LEADING_SHARE)
    preset, _ = preset_of(candidate.meta)
    coarser = preset.roundoff > other_side.preset.roundoff
    return NoiseReport(tuple(stage_noises), preset, isolated, coarser, other_side.name)


@dataclass(frozen=True)
class _ComparisonSide:
    """The side whose distances say how far rounding reaches: the reference, or its peer."""

    trace: Trace
    name: str  # in words
    is_peer: bool
    preset: Preset  # of its arithmetic
    factors: Factors  # for a stage with many positions

    @property
    def rounding(self) -> float:
        """The error of one rounding in its arithmetic."""
        return self.preset.roundoff * (ROUNDING_RMS if self.is_peer else 1)


def _comparison_side(
    reference: Trace, candidate: Trace, exact: Trace, peer: Trace | None, isolated: bool
) -> _ComparisonSide:
    """Returns the side that the candidate is compared with; raises `BadInput` for a peer that does not fit."""
    if peer is None:
        preset, _ = preset_of(reference.meta)
        factors = ISOLATED_FACTORS if isolated else END_TO_END_FACTORS
        return _ComparisonSide(reference, REFERENCE, False, preset, factors)
    peer = cut_like(peer, candidate)
    check_peer(peer, candidate, exact)
    preset, _ = preset_of(peer.meta)
    return _ComparisonSide(peer, f"this model in {peer.meta['dtype']}", True, preset, PEER_FACTORS)


def _stage_noise(
    stage: str, truth: np.ndarray, candidate: Trace, other: _ComparisonSide, least_error: float
) -> StageNoise:
    """Returns the distances of a stage from float64, and their bounds.

    Args:
        least_error: the error that is always allowed.
    """
    other_stage, candidate_stage = other.trace[stage], candidate[stage]
    other_distances, candidate_distances = (distances(truth, side) for side in (other_stage, candidate_stage))
    factors = other.factors.for_positions(len(truth) if truth.ndim else 1)
    preset = _preset_of_stage(stage, candidate, other)
    bound, typical_bound, worst_bound = _bounds(
        other_distances, factors, least_error, preset, other, positions=truth.ndim > 1
    )
    typical = other_distances.typical
    channel = (
        farthest_channel(
            stage, truth, [other_stage], candidate_stage, candidate_distances, typical, least_error, factors
        )
        if other.is_peer
        else {}
    )
    return StageNoise(
        stage=stage,
        reference=other_distances.whole,
        candidate=candidate_distances.whole,
        bound=bound,
        reference_bound=factors.whole * other.preset.limits.relative_l2,
        reference_typical=other_distances.typical,
        candidate_typical=candidate_distances.typical,
        typical_bound=typical_bound,
        reference_worst=other_distances.worst,
        candidate_worst=candidate_distances.worst,
        worst_bound=worst_bound,
        worst_position=candidate_distances.position,
        beside=other.name,
        rounding=least_error,
        **channel,
    )


def _preset_of_stage(stage: str, candidate: Trace, other_side: _ComparisonSide) -> Preset:
    """Returns the preset of a stage's arithmetic, with the limits of the stage.

    Quantisation does not affect the front end, which has no weights.
    """
    if stage.startswith("frontend.") and candidate.meta.get("quantization"):
        return other_side.preset
    preset = preset_of(candidate.meta)[0]
    return replace(preset, limits=preset.for_stage(stage))


def _bounds(
    other_distances: Distances,
    factors: Factors,
    min_rounding: float,
    preset: Preset,
    other_side: _ComparisonSide,
    positions: bool,
) -> tuple[float, float, float]:
    """Returns how far the candidate may be: in the whole stage, at its median position and at its worst position.

    Args:
        other_distances: the distances of the other side.
        preset: that of the candidate's arithmetic.
        positions: whether the stage has positions; otherwise the median position is the whole stage.
    """
    # If the reference happens to be exact, such as copied values, one rounding is still allowed.
    whole, typical, worst = (
        max(each, min_rounding) for each in (other_distances.whole, other_distances.typical, other_distances.worst)
    )
    whole_bound = _bound(factors.whole * whole, preset, other_side.preset)
    typical_bound = _bound((factors.typical if positions else factors.whole) * typical, preset, other_side.preset)
    if other_side.is_peer:
        return whole_bound, typical_bound, factors.worst * worst
    return whole_bound, typical_bound, max(factors.whole * worst, _position_limit(preset))


def farthest_channel(
    stage: str,
    truth: np.ndarray,
    clean_stages: Sequence[np.ndarray],
    candidate_stage: np.ndarray,
    candidate_distances: Distances,
    typical: float,
    min_rounding: float,
    factors: Factors,
    max_deviations: float = CHANNEL_DEVIATIONS,
) -> dict[str, Any]:
    """Returns the channel in which the candidate is farthest relative to clean sides, as fields of a `StageNoise`.

    Args:
        stage: its name; the channels of some stages are not judged (see `has_channels`).
        truth: the stage in float64 [positions, ..., channels]; the other arrays have the same shape.
        clean_stages: the stage of clean sides in the candidate's precision; for each channel, the farthest one counts.
        candidate_stage: the stage of the candidate.
        candidate_distances: the candidate's distances.
        typical: the largest distance of the clean sides' median position.
        min_rounding: the error of one rounding, which is always allowed.
        max_deviations: how far a channel may stand out (see `CHANNEL_DEVIATIONS`).
    """
    if not has_channels(stage, truth):
        return {}
    candidate_errors, sides = by_channel(truth, candidate_stage), [by_channel(truth, each) for each in clean_stages]
    clean_channels = [each for each in sides if each is not None]
    if candidate_errors is None or len(clean_channels) < len(sides) or math.isinf(candidate_distances.whole):
        return {}
    clean_errors = np.max(clean_channels, axis=0)
    # No channel counts as exact by chance. After a ReLU, most may be: at the median position they are zero.
    clean_errors = np.maximum(clean_errors, max(_median_above_zero(clean_errors), MEDIAN_OVER_RMS * min_rounding))
    widening = min(max(candidate_distances.typical / max(typical, min_rounding), 1.0), MAX_CHANNEL_WIDENING)
    multiples = candidate_errors / clean_errors
    worst = int(multiples.argmax())
    log_multiples = np.log(np.maximum(multiples[multiples > 0], 1e-9)) if multiples[worst] > 0 else np.zeros(1)
    log_median = float(np.median(log_multiples))
    spread = float(np.median(np.abs(log_multiples - log_median))) / MEDIAN_OVER_RMS
    bound_multiple = min(factors.channel * widening, math.exp(log_median + max(max_deviations * spread, math.log(2.0))))
    return {
        "reference_channel": float(clean_errors[worst]),
        "candidate_channel": float(candidate_errors[worst]),
        "channel_bound": bound_multiple * float(clean_errors[worst]),
        "worst_channel": worst,
    }


def _median_above_zero(values: np.ndarray) -> float:
    return float(np.median(values[values > 0])) if values.any() else 0.0


def lead_to_first(stage_noises: list[StageNoise], share: float) -> None:
    """Marks the stages just before the first bug that are near their own bounds as bugs."""
    first = next((index for index, each in enumerate(stage_noises) if each.is_bug), 0)
    index = first
    while index and stage_noises[index - 1].share > share:
        index -= 1
        stage_noises[index] = replace(stage_noises[index], leads_to=stage_noises[first].stage)


def _position_limit(preset: Preset) -> float:
    """Returns the allowed relative L2 of one position. With few bits, it may exceed 1 at a position of small values."""
    limit = POSITION_FACTOR * preset.limits.relative_l2
    return limit if preset.limits.relative_l2 >= PRESETS["q4"].limits.relative_l2 else min(limit, 1.0)


def _bound(noise: float, preset: Preset, base: Preset) -> float:
    """Returns the bound where `noise` is the one for the arithmetic of `base`: coarser arithmetic rounds more."""
    if preset.roundoff <= base.roundoff:
        return noise
    return max(noise, min(noise * preset.roundoff / base.roundoff, preset.limits.relative_l2))
