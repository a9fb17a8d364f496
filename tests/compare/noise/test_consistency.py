"""Fault detection over several inputs: sign test, Holm correction, and faults that no single input shows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compare.noise.test_spread import NOISE, STAGES, Half
from workbench.compare.noise.consistency import (
    LEVEL,
    MARGIN,
    MEDIAN,
    Consistency,
    Measurement,
    consistency,
    holm,
    measurements_of,
    sign_test,
)
from workbench.compare.noise.spread import ORDERS


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6)), min_size=1, max_size=7))
def test_sign_test_matches_the_sum_over_all_outcomes(pairs: list[tuple[bool, int]]) -> None:
    """The slow definition adds the probabilities of all outcomes with at least as many inputs."""
    farther, clean = zip(*pairs)
    expected = 0.0
    for outcome in itertools.product([False, True], repeat=len(pairs)):
        if sum(outcome) >= sum(farther):
            chances = [1 / (n + 1) if hit else n / (n + 1) for hit, n in zip(outcome, clean)]
            expected += math.prod(chances)
    assert sign_test(farther, clean) == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_correction_matches_its_definition(ps: list[float]) -> None:
    ordered = sorted(ps)
    for p, corrected in zip(ps, holm(ps), strict=True):
        place = ordered.index(p)
        expected = max(min(1.0, (len(ps) - n) * ordered[n]) for n in range(place + 1))
        assert corrected == pytest.approx(expected, abs=1e-12) and corrected >= p


def judge_inputs(fault_size: float, inputs: int, seed: int = 0, at: int = 1) -> tuple[Consistency, int]:
    """Returns the verdict over inputs with a small fault, and how many inputs show it alone."""
    measurements, found_alone = [], 0
    for number in range(inputs):
        half = Half(1000 * seed + number)
        report = half.judge_candidate(half.compute(lambda x: fault_size * NOISE * x, at))
        found_alone += report.first_bug is not None
        measurements.append(measurements_of(report, ORDERS))
    return consistency(measurements), found_alone


def test_small_fault_is_found_over_several_inputs_at_its_stage() -> None:
    verdict, found_alone = judge_inputs(1.4, 8)
    assert found_alone == 0
    assert verdict.first_fault and verdict.first_fault.stage == STAGES[1]
    assert verdict.sentence.startswith(
        f"{STAGES[1]} is the first stage in error over 8 inputs: at the median position, "
    )
    assert "(sign test, p = " in verdict.sentence and f"corrected for {len(verdict.stages)} tests)" in verdict.sentence
    document = verdict.to_dict()
    assert (
        document["first_fault"] == STAGES[1]
        and document["stages"][0]["error_over_limit"]["median"]
        < 1
        < document["stages"][2]["error_over_limit"]["median"]
    )


def test_clean_inputs_report_no_fault() -> None:
    for seed in range(6):
        verdict, _ = judge_inputs(0.0, 5, seed)
        assert verdict.first_fault is None and verdict.sentence.startswith("No stage is in error over 5 inputs")


def test_report_states_the_least_number_of_inputs() -> None:
    verdict, _ = judge_inputs(1.4, 2)
    assert verdict.first_fault is None and verdict.least_inputs == 4
    assert verdict.sentence.endswith("; a fault near the noise needs at least 4 inputs to show.")
    least = (1 / (ORDERS + 1)) ** verdict.least_inputs * len(verdict.stages)
    assert least < LEVEL <= least * (ORDERS + 1)


def test_smallest_sufficient_number_of_inputs_gives_a_result() -> None:
    least = Consistency((), 1, ORDERS).least_inputs
    assert "needs at least" in Consistency((), least - 1, ORDERS).sentence
    assert "needs at least" not in Consistency((), least, ORDERS).sentence


def test_a_measurement_is_relative_to_the_farthest_clean_computation() -> None:
    half = Half(0)
    report = half.judge_candidate(half.compute())
    measurement = next(each for each in measurements_of(report, ORDERS) if each.measure == MEDIAN)
    first = report.stages[0]
    assert measurement.ratio == pytest.approx(first.candidate_typical / (MARGIN * first.reference_typical))
    assert Measurement("x", MEDIAN, 0.0, 0.0, 5).ratio == 0 and Measurement("x", MEDIAN, 1.0, 0.0, 5).ratio == np.inf
