"""Bootstrap intervals and paired differences against a slow definition, every possible draw, and a simulation."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.evaluation.statistics import (
    Blocks,
    Difference,
    Interval,
    blocks_of,
    correction,
    differences,
    rate_intervals,
    resampled_sums,
    resamples_for,
    widened,
)


def slow_rates(errors: list[int], units: list[int], blocks: list[int], draws: int, seed: int) -> list[float]:
    """Follows the definition one draw at a time: pools all recordings of each drawn block."""
    members = {block: [place for place, label in enumerate(blocks) if label == block] for block in blocks}
    samples = np.random.default_rng(seed).integers(0, len(members), (draws, len(members)), dtype=np.int32)
    rates = []
    for row in samples:
        places = [place for block in row for place in members[int(block)]]
        error_sum, unit_sum = sum(errors[place] for place in places), sum(units[place] for place in places)
        if unit_sum:
            rates.append(error_sum / unit_sum)
    return rates


def table(*columns: list[float]) -> np.ndarray:
    return np.array(columns, dtype=float).T


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(0, 5)), min_size=2, max_size=30),
    st.integers(0, 2**31),
)
def test_bootstrap_interval_matches_the_slow_definition(recordings: list[tuple[int, int, int]], seed: int) -> None:
    errors, units, speakers = (list(each) for each in zip(*recordings))
    blocks = blocks_of([f"speaker {each}" for each in speakers])
    [interval] = rate_intervals(table(errors), table(units), blocks, draws=200, seed=seed)
    slow = slow_rates(errors, units, [int(each) for each in blocks.of], 200, seed)
    assert interval.rate == pytest.approx(sum(errors) / sum(units))
    beyond = widened(0.05, blocks.count) / 2 if blocks.count > 1 else 0
    assert blocks.count < 2 or [interval.low, interval.high] == pytest.approx(
        list(np.quantile(slow, (beyond, 1 - beyond)))
    )


def test_bootstrap_interval_matches_all_possible_draws() -> None:
    errors, units = [0, 1, 4, 2], [5, 3, 4, 6]
    every = [
        sum(errors[place] for place in sample) / sum(units[place] for place in sample)
        for sample in itertools.product(range(4), repeat=4)
    ]
    [interval] = rate_intervals(table(errors), table(units), blocks_of([None] * 4), draws=20_000)
    beyond = widened(0.05, 4) / 2
    assert [interval.low, interval.high] == pytest.approx(list(np.quantile(every, (beyond, 1 - beyond))), abs=0.03)


@pytest.mark.parametrize("blocks, outside, student", [(2, 0.05, 12.7062), (6, 0.05, 2.5706), (21, 0.01, 2.8453)])
def test_interval_of_few_blocks_is_widened_by_the_student_t_quantile(
    blocks: int, outside: float, student: float
) -> None:
    """Quantiles from printed tables of Student's distribution."""
    expected = 2 * NormalDist().cdf(-student * math.sqrt(blocks / (blocks - 1)))
    assert widened(outside, blocks) == pytest.approx(expected, rel=1e-3)
    assert widened(outside, 10_000) == pytest.approx(outside, rel=2e-3)
    assert widened(outside, 10_001) == outside


def test_bootstrap_draws_are_independent_of_other_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = np.arange(12.0).reshape(6, 2)
    full = resampled_sums(sums, 50, seed=3)
    assert np.array_equal(full[:, :1], resampled_sums(sums[:, :1], 50, seed=3))
    monkeypatch.setattr("workbench.evaluation.statistics.DRAWN_AT_ONCE", 7)
    assert np.array_equal(full, resampled_sums(sums, 50, seed=3))


def test_known_speakers_are_the_bootstrap_blocks() -> None:
    assert list(blocks_of(["a", None, "a", None, "b"]).of) == [0, 1, 0, 2, 3]
    assert blocks_of(["a", "b", "a"]).by == "speakers"
    assert blocks_of(["a", "", "b"]).by == "speakers, and recordings without one"
    assert (blocks_of(["a", "a"]).by, blocks_of(["a", "a"]).count) == ("recordings", 2)
    assert (blocks_of([]).by, blocks_of([]).count) == ("recordings", 0)
    assert "few" in blocks_of(list("abc")).about and "few" not in blocks_of(range(1, 30)).about
    assert "no intervals" in blocks_of(["a"]).about


def test_differing_speakers_widen_the_interval() -> None:
    errors = table([0] * 40 + [5] * 40)
    units = np.full((80, 1), 10.0)
    speakers = [f"{place // 8}" for place in range(80)]
    [by_speaker] = rate_intervals(errors, units, blocks_of(speakers))
    [by_recording] = rate_intervals(errors, units, blocks_of([None] * 80))
    assert by_speaker.rate == by_recording.rate == 0.25
    wide, narrow = (each.high - each.low for each in (by_speaker, by_recording))  # type: ignore[operator]
    assert wide > 2 * narrow


def test_equal_recordings_give_an_interval_of_zero_width() -> None:
    [interval] = rate_intervals(np.full((9, 1), 2.0), np.full((9, 1), 8.0), blocks_of([None] * 9))
    assert interval == Interval(0.25, 0.25, 0.25)
    assert str(interval) == "25.0 % (25.0 to 25.0)"


def test_recordings_without_a_score_are_ignored() -> None:
    nan = math.nan
    intervals = rate_intervals(table([1, nan, 1], [nan] * 3), table([2, nan, 2], [nan] * 3), blocks_of([None] * 3))
    assert intervals[0].rate == 0.5 and intervals[0].low == 0.5
    assert intervals[1] == Interval(None, None, None) and str(intervals[1]) == "not defined"
    [interval] = rate_intervals(table([1]), table([4]), blocks_of(["a"]))
    assert interval == Interval(0.25, None, None) and str(interval) == "25.0 %"
    [single] = differences(["a", "b"], table([1], [2]), table([4], [4]), blocks_of(["a"]))
    assert single.verdict == "unknown" and single.sentence == (
        "It is not known whether b is worse than a: difference 25.0 points; an interval needs at least two recordings."
    )
    [none] = differences(["a", "b"], table([1, nan], [nan, 1]), table([4, nan], [nan, 4]), blocks_of([None] * 2))
    assert none.verdict == "unknown" and "no scored recording in common" in none.sentence


def verdict_of(errors: np.ndarray, units: float = 10.0, names: tuple[str, ...] = ("f32", "q8_0")) -> Difference:
    return differences(names, errors, np.full(errors.shape, units), blocks_of([None] * len(errors)), draws=2000)[0]


def test_difference_verdicts_match_the_simulated_cases() -> None:
    source = np.random.default_rng(0)
    reference = source.integers(0, 3, 400).astype(float)
    nearly_same = reference.copy()
    nearly_same[:4] += [1, -1, 1, 0]
    cases = {
        "same": reference,
        "worse": reference + source.integers(0, 2, 400),
        "better": np.maximum(reference - source.integers(0, 2, 400), 0),
        "not worse": nearly_same,
    }
    for verdict, candidate in cases.items():
        assert verdict_of(np.stack([reference, candidate], axis=1)).verdict == verdict
    undecided = verdict_of(np.stack([reference[:30], reference[30:60]], axis=1))
    assert undecided.verdict == "open" and "more recordings are needed" in undecided.sentence
    worse = verdict_of(np.stack([reference, cases["worse"]], axis=1))
    assert worse.sentence.startswith("q8_0 is worse than f32: difference ") and "95 % interval" in worse.sentence
    not_worse = Difference("f32", "q8_0", 500, 500, 0.001, -0.001, 0.003, alike=False, pairs=1)
    assert not_worse.sentence == (
        "q8_0 is not worse than f32: difference 0.1 points, 95 % interval -0.1 to 0.3, all of it below 0.5."
    )


def test_sentences_say_how_many_recordings_are_compared_unless_all_are() -> None:
    nan = math.nan
    errors = table([1, 1, 0, nan], [1, 2, nan, 0])
    [found] = differences(["f32", "q8_0"], errors, 0 * errors + 4, blocks_of([None] * 4), total=9)
    assert (found.recordings, found.total) == (2, 9)
    assert found.sentence.startswith(
        "It is open whether q8_0 is worse than f32: difference 12.5 points on the recordings with a score of both "
        "(2 of 9), 95 % interval "
    )
    [same] = differences(["f32", "q8_0"], table([1, 1], [1, nan]), table([4, 4], [4, nan]), blocks_of([None] * 2))
    assert same.sentence == "q8_0 makes as many errors as f32 on every recording with a score of both (1 of 2)."
    [all_same] = differences(["f32", "q8_0"], table([1, 1], [1, 1]), table([4, 4], [4, 4]), blocks_of([None] * 2))
    assert all_same.sentence == "q8_0 makes as many errors as f32 on every recording."
    [single] = differences(["f32", "q8_0"], table([1, 1], [2, nan]), table([4, 4], [4, nan]), blocks_of([None] * 2))
    assert single.sentence == (
        "It is not known whether q8_0 is worse than f32: difference 25.0 points on the recordings with a score of "
        "both (1 of 2); an interval needs at least two recordings."
    )


def test_paired_differences_use_the_same_bootstrap_draws() -> None:
    """Two models that fail on the same recordings differ less than their own intervals suggest."""
    source = np.random.default_rng(1)
    hard = source.integers(0, 8, 300).astype(float)
    errors = np.stack([hard, np.minimum(hard + (source.random(300) < 0.05), 10)], axis=1)
    units = np.full((300, 2), 10.0)
    blocks = blocks_of([None] * 300)
    first, second = rate_intervals(errors, units, blocks)
    [difference] = differences(["a", "b"], errors, units, blocks)
    assert first.high > second.low  # type: ignore[operator]
    assert difference.verdict == "worse"


def test_many_pairs_get_wider_intervals() -> None:
    source = np.random.default_rng(2)
    errors = source.integers(0, 4, (200, 4)).astype(float)
    units, blocks = np.full((200, 4), 10.0), blocks_of([None] * 200)
    [alone] = differences(["a", "b"], errors[:, :2], units[:, :2], blocks)
    among = differences(list("abcd"), errors, units, blocks)
    assert len(among) == 6 and (among[0].base, among[0].other) == ("a", "b")
    assert among[0].low < alone.low and among[0].high > alone.high  # type: ignore[operator]
    assert "6 pairs" in correction(6) and correction(1) == ""
    assert resamples_for(100_000) == 4000 and resamples_for(100) == 20_000 and resamples_for(10**6, 6) == 4800


def test_interval_coverage_matches_its_confidence_level() -> None:
    """300 made-up corpora of 60 speakers; `benchmarks/evaluate_coverage.py` has the large simulation."""
    from benchmarks.evaluate_coverage import simulate

    coverage = simulate(corpora=300, speakers=60, recordings=4, draws=600, seed=5)
    assert 0.91 <= coverage.rate <= 0.985 and 0.91 <= coverage.difference <= 0.985


def test_explicit_blocks_are_used() -> None:
    [interval] = rate_intervals(table([1, 1, 3]), table([4, 4, 4]), Blocks(np.array([0, 0, 1]), 2, "speakers"))
    assert interval.rate == pytest.approx(5 / 12) and (interval.low, interval.high) == (0.25, 0.75)


def test_blocks_without_a_score_are_excluded_for_that_model_or_pair() -> None:
    generator = np.random.default_rng(0)
    errors, units = generator.integers(0, 4, (26, 3)).astype(float), generator.integers(4, 9, (26, 3)).astype(float)
    errors[1:, 1] = units[1:, 1] = np.nan
    errors[5:, 2] = units[5:, 2] = np.nan
    speakers = [f"s{number // 2}" for number in range(26)]
    for blocks, few_blocks in (
        (blocks_of([None] * 26), blocks_of([None] * 5)),
        (blocks_of(speakers), blocks_of(speakers[:5])),
    ):
        full, one, five = rate_intervals(errors, units, blocks, draws=500)
        assert full == rate_intervals(errors[:, :1], units[:, :1], blocks, draws=500)[0]
        assert (one.rate, one.low, one.high) == (errors[0, 1] / units[0, 1], None, None)
        assert five == rate_intervals(errors[:5, 2:], units[:5, 2:], few_blocks, draws=500)[0]
        pairs = differences("abc", errors, units, blocks, draws=500)
        alone = differences("abc", errors[:5], units[:5], few_blocks, draws=500)
        assert pairs[0].verdict == "unknown" and (pairs[1].low, pairs[1].high) == (alone[1].low, alone[1].high)


def test_empty_reference_with_empty_hypothesis_has_zero_error_rate() -> None:
    zeros, blocks = np.zeros((3, 2)), blocks_of([None] * 3)
    assert [each.rate for each in rate_intervals(zeros, zeros, blocks)] == [0.0, 0.0]
    assert [each.rate for each in rate_intervals(zeros + 1, zeros, blocks)] == [None, None]
    assert differences("ab", zeros, zeros, blocks)[0].verdict == "same"
