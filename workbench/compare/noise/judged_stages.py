"""Which stages tell noise from bugs, and the rounding error that is always allowed in each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from workbench.compare.guesses.guess import units_of
from workbench.compare.noise.limits import FRONT_END_ERROR
from workbench.compare.tokens.answers import FOLLOWING, SETTINGS
from workbench.trace.order import computation_order, is_aside, kind_of
from workbench.trace.trace import StageFilter, Trace

_NON_NUMERIC_KINDS = ("tokens", "streams", "text", "logprobs")  # kinds of stages that hold no numbers to measure


def judged_stages(
    stages: str, ordered: Trace, exact: Trace, sides: Sequence[Trace], same_answers: bool
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the stages of numbers that all traces have, each with its values in float64.

    Args:
        stages: a pattern of names.
        ordered: the trace that gives the order of the computation.
        same_answers: whether all traces hold the same answer; `workbench.compare.tokens.answers` judges other answers.
    """
    stage_filter = StageFilter(stages, is_recorded=True)
    for stage in computation_order([each for each in ordered if stage_filter(each)], recorded=ordered.is_ordered):
        if is_aside(stage) or any(stage not in each for each in (exact, *sides)):
            continue
        truth = exact[stage]
        if kind_of(stage, truth) in _NON_NUMERIC_KINDS or stage in SETTINGS:
            continue
        if same_answers or not (stage in FOLLOWING or stage.startswith("answer.")):
            yield stage, truth


def has_channels(stage: str, truth: np.ndarray) -> bool:
    """Returns whether each channel of a stage has positions by which it can be judged.

    Attention weights have none: for each pair of query and key they have one value of each head, which is too few.
    """
    return units_of(stage, truth.ndim)[0] != "head"


class AllowedRounding:
    """The rounding error that is allowed in each stage.

    Args:
        min_rounding: the error of one rounding.
        isolated: whether each stage is judged alone, so that no error enters the next.
    """

    def __init__(self, min_rounding: float, isolated: bool):
        self._min_rounding, self._isolated = min_rounding, isolated
        self._entering = min_rounding
        self._of_front_end = 0.0

    def for_stage(self, truth: np.ndarray) -> float:
        """Returns the allowed error of the stage with these values in the float64 trace."""
        return self._entering if _is_float64(truth) else max(FRONT_END_ERROR, self._min_rounding)

    def for_mean(self, truth: np.ndarray) -> float:
        """Returns the allowed error of the mean over the positions of the stage.

        Roundings of many positions cancel each other. But a front end in float32 may round all positions alike, and so
        may the one in the float64 trace, from which distances are measured; this error enters all later stages.
        """
        if not _is_float64(truth):
            return self.for_stage(truth)
        positions = len(truth) if truth.ndim else 1
        return max(self._entering / math.sqrt(max(positions, 1)), self._of_front_end)

    def enter(self, truth: np.ndarray, error: float) -> None:
        """Notes the candidate's error in a stage without a bug.

        That of the front end, which float64 does not judge, enters all later stages.
        """
        if not _is_float64(truth) and not self._isolated:
            self._entering = max(self._entering, error)
            self._of_front_end = max(self._of_front_end, error)


def _is_float64(values: np.ndarray) -> bool:
    return values.dtype.itemsize >= 8
