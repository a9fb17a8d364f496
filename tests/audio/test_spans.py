"""Limiting span length: no sample is lost or repeated, no span is too long, and cuts are at quiet places."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.audio.spans import Span, between, cap_spans, frame_levels, joined_short, widened
from workbench.core.errors import BadInput

RATE = 16_000


@st.composite
def span_lists(draw: st.DrawFn) -> list[Span]:
    """Spans in order without overlap, some touching, some empty, off the sample grid."""
    steps = draw(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 70)), max_size=6))
    spans, at = [], 0.0
    for gap, length in steps:
        spans.append(Span(at + gap, at + gap + length))
        at += gap + length
    return spans


def on_a_grid(spans: list[Span]) -> list[Span]:
    """Returns the spans that are not empty, with edges whose sums are exact."""
    exact = [Span(round(span.start * 64) / 64, round(span.end * 64) / 64) for span in spans]
    return [span for span in exact if span.end > span.start]


def covered_samples(spans: list[Span]) -> set[int]:
    """Returns the samples of a coarse comb that the spans cover; `total` would count a sample twice."""
    return {tooth for span in spans for tooth in range(-(-span.slice.start // 997) * 997, span.slice.stop, 997)}


def total(spans: list[Span]) -> int:
    return sum(span.slice.stop - span.slice.start for span in spans)


@given(spans=span_lists(), cap=st.floats(0.5, 40), seed=st.one_of(st.none(), st.integers(0, 99)))
def test_capping_covers_the_same_samples_in_order(spans: list[Span], cap: float, seed: int | None) -> None:
    curve = None if seed is None else np.random.default_rng(seed).standard_normal(8000).astype(np.float32)
    capped = cap_spans(spans, cap, curve)
    assert total(capped) == total(spans)
    assert covered_samples(capped) == covered_samples(spans)
    for span in capped:
        assert 0 < span.slice.stop - span.slice.start <= cap * RATE
        assert span.seconds <= cap + 1e-9
    for before, after in pairwise(capped):
        assert before.end <= after.start


@given(spans=span_lists(), cap=st.floats(0.5, 40), gap=st.floats(0, 3))
def test_merging_only_adds_the_gaps(spans: list[Span], cap: float, gap: float) -> None:
    plain, merged = cap_spans(spans, cap), cap_spans(spans, cap, merge_gap=gap)
    assert len(merged) <= len(plain)
    assert covered_samples(merged) >= covered_samples(plain)
    starts, ends = {span.start for span in plain}, {span.end for span in plain}
    inside = iter(plain)
    for span in merged:
        assert span.start in starts and span.end in ends
        assert span.slice.stop - span.slice.start <= cap * RATE
        within = []
        for part in inside:
            within.append(part)
            if part.end == span.end:
                break
        assert within[0].start == span.start
        assert all(b.slice.start - a.slice.stop <= gap * RATE for a, b in pairwise(within))
    for before, after in pairwise(merged):  # greedy: what was left apart could not be joined
        too_far = after.slice.start - before.slice.stop > gap * RATE
        next_part = next(part for part in plain if part.start == after.start)
        assert too_far or next_part.slice.stop - before.slice.start > cap * RATE


def test_span_without_a_level_curve_is_cut_into_equal_pieces() -> None:
    assert cap_spans([Span(1.0, 91.0)], 30) == [Span(1.0, 31.0), Span(31.0, 61.0), Span(61.0, 91.0)]
    pieces = cap_spans([Span(0.0, 100.0)], 30)
    assert len(pieces) == 4 and all(abs(piece.seconds - 25) < 1e-3 for piece in pieces)


def test_span_is_cut_at_the_longest_quiet_pause() -> None:
    levels = np.zeros(10_000, dtype=np.float32)
    levels[2_450:2_490] = -40  # a pause of 400 ms
    levels[1_700] = -200  # one quiet frame, deeper but too short to cut in
    levels[500:600] = -90  # a longer pause, too early
    first, second = cap_spans([Span(0.0, 40.0)], 30, levels)
    assert 24.6 <= first.end <= 24.8
    assert second == Span(first.end, 40.0)


def test_cut_uses_the_last_of_equal_places_without_leaving_a_tiny_piece() -> None:
    flat = np.zeros(10_000, dtype=np.float32)
    pieces = cap_spans([Span(0.0, 31.0)], 30, flat)
    assert len(pieces) == 2 and pieces[1].seconds >= 7.4
    assert cap_spans([Span(0.0, 60.0)], 30, flat)[0].seconds > 29.9


def test_level_curve_shorter_than_the_span_is_accepted() -> None:
    for curve in (np.zeros(0, dtype=np.float32), np.zeros(1000, dtype=np.float32)):
        pieces = cap_spans([Span(0.0, 100.0)], 30, curve)
        assert total(pieces) == 100 * RATE and all(piece.seconds <= 30 for piece in pieces)


def test_spans_are_merged_across_short_gaps_up_to_the_maximum_length() -> None:
    spans = [Span(0, 2), Span(2.3, 4), Span(4.1, 29.5), Span(29.9, 31), Span(35, 36)]
    assert cap_spans(spans, 30, merge_gap=0.5) == [Span(0, 29.5), Span(29.9, 31), Span(35, 36)]


def test_invalid_cap_and_unordered_spans_are_refused() -> None:
    for cap in (0.0, -1.0, float("nan")):
        with pytest.raises(BadInput):
            cap_spans([], cap)
    with pytest.raises(ValueError, match="ends before"):
        cap_spans([Span(0, 2), Span(1, 3)])
    with pytest.raises(ValueError, match="ends before"):
        cap_spans([Span(2, 1)])
    assert cap_spans([Span(0, 90)], float("inf")) == [Span(0, 90)]


@given(spans=span_lists().map(on_a_grid), by=st.floats(0, 3), rest=st.floats(0, 3))
def test_widened_spans_grow_at_most_by_the_margin_and_never_overlap(spans: list[Span], by: float, rest: float) -> None:
    seconds = (spans[-1].end if spans else 0.0) + rest
    wide = widened(spans, by, 0.0, seconds)
    assert len(wide) == len(spans)
    for old, new in zip(spans, wide, strict=True):
        assert max(old.start - by, 0) - 1e-9 <= new.start <= old.start
        assert old.end <= new.end <= min(old.end + by, seconds) + 1e-9
    for before, after in pairwise(wide):
        assert before.end <= after.start and before.slice.stop <= after.slice.start


def test_widened_neighbours_share_the_middle_of_a_short_pause() -> None:
    wide = widened([Span(0.2, 1.0), Span(1.6, 2.0), Span(4.0, 4.5)], 0.5, 0.0, 4.75)
    assert wide == [Span(0.0, 1.3), Span(1.3, 2.5), Span(3.5, 4.75)]


@given(spans=span_lists().map(on_a_grid), short=st.floats(0, 20), gap=st.floats(0, 5), longest=st.floats(1, 60))
def test_joining_short_spans_only_adds_the_gaps(spans: list[Span], short: float, gap: float, longest: float) -> None:
    joined = joined_short(spans, short, gap, longest)
    assert covered_samples(joined) >= covered_samples(spans) and total(joined) <= total(spans) + gap * RATE * len(spans)
    assert {span.start for span in joined} <= {span.start for span in spans}
    assert {span.end for span in joined} <= {span.end for span in spans}
    assert all(span in spans or span.seconds <= longest for span in joined)
    for one, two in pairwise(joined):  # what was left apart could not be joined
        first = next(span for span in spans if span.start == two.start and span.end <= two.end)
        apart = two.start - one.end > gap or first.end - one.start > longest
        assert apart or min(one.seconds, first.seconds) >= short


def test_short_span_is_joined_with_its_nearest_neighbours() -> None:
    words = [Span(1, 2), Span(4, 5), Span(8, 9), Span(20, 28), Span(31, 32), Span(60, 61)]
    assert joined_short(words, 6.0, 4.0, 20.0) == [Span(1, 9), Span(20, 32), Span(60, 61)]
    assert joined_short(words, 6.0, 4.0, 5.0) == [Span(1, 5), Span(8, 9), *words[3:]]


@given(spans=span_lists().map(on_a_grid), rest=st.floats(0, 3))
def test_spans_and_gaps_cover_the_recording(spans: list[Span], rest: float) -> None:
    seconds = (spans[-1].end if spans else 0.0) + rest
    both = sorted([*spans, *between(spans, seconds)])
    assert [one.end for one in both[:-1]] == [two.start for two in both[1:]]
    assert not both or (both[0].start, both[-1].end) == (0.0, seconds)


def test_frame_levels_are_in_decibels_per_10_ms() -> None:
    square = np.tile([1.0, -1.0], 80)
    samples = np.concatenate([0 * square, 0.1 * square, square[:80]]).astype(np.float32)
    np.testing.assert_allclose(frame_levels(samples), [-100, -20, 0], atol=1e-4)
    np.testing.assert_allclose(frame_levels(samples + np.float32(0.5)), [-100, -20, 0], atol=1e-4)
    many = np.repeat(np.array([0.1, 1.0], np.float32), 61 * RATE) * np.resize(square, 122 * RATE)
    np.testing.assert_allclose(frame_levels(many), np.repeat([-20, 0], 6100), atol=1e-3)
    assert len(frame_levels(np.zeros(0, dtype=np.float32))) == 0


def test_span_gives_its_sample_slice() -> None:
    assert Span(0.5, 1.25).slice == slice(8_000, 20_000) and Span(0.5, 1.25).seconds == 0.75
