"""Finds faults near the noise by their consistency: several inputs, one verdict.

A small fault, such as another epsilon in one norm, may stay within what rounding explains on every single input. But it
makes the candidate worse on all of them, while rounding makes it worse on some and better on others.

The test is a sign test with a known share (the binomial test; Conover, Practical Nonparametric Statistics, 3rd ed.,
section 3.1). On each input, the candidate's distance from float64 at a stage is compared with those of n clean
computations in its precision. A candidate that only rounds is farther than all n of them with a chance of at most 1 /
(n + 1), because each of the n + 1 is equally likely to be the farthest. It has to be farther by a margin, because some
libraries round a few more steps. The p-value is the chance that this many inputs, or more, show it as the farthest.
Because all stages are tested, the p-values are corrected by Holm's method (Holm 1979, A simple sequentially rejective
multiple test procedure).

Inputs must be independent recordings or texts. This file reads no traces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.compare.noise.report import NoiseReport

LEVEL = 0.01  # the chance of a false alarm in a whole verdict
MARGIN = 1.25  # a candidate counts as farther only by this factor
REFERENCE_MARGIN = (
    2.0  # the same factor relative to the reference alone, because other libraries' kernels may round more
)
MEDIAN, MEAN = "at the median position", "on the mean of all positions"


@dataclass(frozen=True)
class Measurement:
    """One measure of one stage on one input."""

    stage: str
    measure: str  # `MEDIAN` or `MEAN`
    error: float  # of the candidate
    limit: float  # of the farthest clean computation, times the margin
    clean: int  # clean computations that it was compared with

    @property
    def ratio(self) -> float:
        """The error divided by the limit."""
        return self.error / self.limit if self.limit else math.inf if self.error else 0.0


@dataclass(frozen=True)
class StageConsistency:
    """One measure of one stage over all inputs."""

    stage: str
    measure: str
    inputs: int
    farther: int  # inputs on which the candidate is beyond the limit
    ratios: tuple[float, float, float, float, float]  # error / limit: least, quartiles, largest
    p: float
    corrected: float  # by Holm's method over all stages

    @property
    def is_fault(self) -> bool:
        """Whether chance does not explain it."""
        return self.corrected < LEVEL

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        names = ("least", "lower_quartile", "median", "upper_quartile", "largest")
        return {
            "stage": self.stage,
            "measure": self.measure,
            "inputs": self.inputs,
            "farther": self.farther,
            "error_over_limit": {name: _finite(value) for name, value in zip(names, self.ratios)},
            "p": self.p,
            "corrected_p": self.corrected,
            "is_fault": self.is_fault,
        }


@dataclass(frozen=True)
class Consistency:
    """What several inputs show together, stage by stage in the order of the computation."""

    stages: tuple[StageConsistency, ...]
    inputs: int
    clean: int  # the least number of clean computations on any input

    @property
    def first_fault(self) -> StageConsistency | None:
        """The first stage whose error is beyond chance; end to end, later stages inherit its error."""
        return next((each for each in self.stages if each.is_fault), None)

    @property
    def least_inputs(self) -> int:
        """The least number of inputs with which the smallest fault could be named."""
        return math.ceil(math.log(LEVEL / max(len(self.stages), 1)) / math.log(1 / (self.clean + 1)))

    @property
    def sentence(self) -> str:
        """The conclusion as a sentence."""
        inputs_clause = f"over {self.inputs} inputs"
        if fault := self.first_fault:
            return (
                f"{fault.stage} is the first stage in error {inputs_clause}: {fault.measure}, the candidate is farther "
                f"from float64 than rounding on {fault.farther} of {fault.inputs}, usually {fault.ratios[2]:.2g} times "
                f"its limit (sign test, p = {fault.corrected:.1g}, corrected for {len(self.stages)} tests)."
            )
        clause = (
            f"No stage is in error {inputs_clause} (sign test, {len(self.stages)} tests, corrected by Holm's method)"
        )
        if self.inputs < self.least_inputs:
            return f"{clause}; a fault near the noise needs at least {self.least_inputs} inputs to show."
        return f"{clause}."

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        fault = self.first_fault
        return {
            "test": "sign test (binomial), corrected by Holm's method",
            "level": LEVEL,
            "margin": MARGIN,
            "inputs": self.inputs,
            "clean_computations": self.clean,
            "tests": len(self.stages),
            "least_inputs": self.least_inputs,
            "first_fault": fault.stage if fault else None,
            "sentence": self.sentence,
            "stages": [each.to_dict() for each in self.stages],
        }


def measurements_of(noise: NoiseReport, clean: int) -> tuple[Measurement, ...]:
    """Returns the measurements of all stages of one input.

    Args:
        clean: the number of clean computations that the report is based on; 1 for the reference alone.
    """
    margin = MARGIN if clean > 1 else REFERENCE_MARGIN
    measurements = list[Measurement]()
    for each in noise.stages:
        clean_error = max(each.reference_typical, each.rounding)
        measurements.append(Measurement(each.stage, MEDIAN, each.candidate_typical, margin * clean_error, clean))
        if each.reference_steady:
            measurements.append(
                Measurement(each.stage, MEAN, each.candidate_steady, margin * each.reference_steady, clean)
            )
    return tuple(measurements)


def consistency(inputs: Sequence[Sequence[Measurement]]) -> Consistency:
    """Returns the verdict of the measurements of several inputs together; a stage counts on the inputs that have it."""
    order = dict.fromkeys(each.stage for measurements in inputs for each in measurements)
    by_measure: dict[tuple[str, str], list[Measurement]] = {
        (stage, kind): [] for stage in order for kind in (MEDIAN, MEAN)
    }
    for each in (each for measurements in inputs for each in measurements):
        by_measure[each.stage, each.measure].append(each)
    tested = [measurements for measurements in by_measure.values() if measurements]
    ps = [sign_test([each.ratio > 1 for each in group], [each.clean for each in group]) for group in tested]
    stages = [_over_inputs(measurements, p, q) for measurements, p, q in zip(tested, ps, holm(ps), strict=True)]
    min_clean = min((each.clean for measurements in tested for each in measurements), default=1)
    return Consistency(tuple(stages), len(inputs), min_clean)


def _over_inputs(measurements: Sequence[Measurement], p: float, corrected: float) -> StageConsistency:
    ratios = np.array([min(each.ratio, 1e300) for each in measurements])
    lowest, lower, middle, upper, largest = (float(x) for x in np.quantile(ratios, (0, 0.25, 0.5, 0.75, 1)))
    farther, first = sum(each.ratio > 1 for each in measurements), measurements[0]
    spread = (lowest, lower, middle, upper, largest)
    return StageConsistency(first.stage, first.measure, len(measurements), farther, spread, p, corrected)


def sign_test(farther: Sequence[bool], clean: Sequence[int]) -> float:
    """Returns the chance of at least as many inputs with `farther` if each has the chance 1 / (clean + 1).

    The numbers of clean computations may differ between inputs; the exact distribution of the count is computed.
    """
    chances = np.zeros(len(farther) + 1)
    chances[0] = 1.0
    for number, count in enumerate(clean, 1):
        share = 1 / (count + 1)
        chances[1 : number + 1] = chances[1 : number + 1] * (1 - share) + chances[:number] * share
        chances[0] *= 1 - share
    return float(min(chances[sum(farther) :].sum(), 1.0))


def holm(ps: Sequence[float]) -> list[float]:
    """Returns p-values corrected for their number by Holm's method, each at most 1."""
    order = np.argsort(ps, kind="stable")
    adjusted = [1.0] * len(ps)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min((len(ps) - rank) * ps[index], 1.0))
        adjusted[index] = float(largest)
    return adjusted


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
