"""Which hypotheses live on, against a slow definition; and a threshold drops what is worse by more than it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.decoding.ctc_beam.test_bounds import peaked_problem
from workbench.decoding.ctc_beam import CtcDecoder, SearchOptions
from workbench.decoding.ctc_beam.selection import choose, floor_of, surviving

SCORES = st.sampled_from([-np.inf, -5.0, -4.0, -3.0, -2.5, -1.0, 0.0])
THRESHOLDS = st.sampled_from([None, 0.0, 1.0, 2.5, 100.0])


def surviving_places(scores: list[float], size: int, threshold: float | None) -> list[int]:
    """Returns the places of the best scores, the earlier of equal ones, and none below the threshold."""
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    floor = -np.inf if threshold is None or not scores else max(scores) - threshold
    return sorted(place for place in order[:size] if scores[place] > -np.inf and scores[place] >= floor)


@given(st.data(), st.integers(1, 5), THRESHOLDS, st.integers(1, 3))
def test_best_hypotheses_within_the_threshold_are_selected(
    data: st.DataObject, size: int, threshold: float | None, utterances: int
) -> None:
    rows = data.draw(st.integers(1, 6))
    old = data.draw(st.lists(st.lists(SCORES, min_size=rows, max_size=rows), min_size=utterances, max_size=utterances))
    new = data.draw(st.lists(st.lists(SCORES, max_size=5), min_size=utterances, max_size=utterances))
    of = np.repeat(np.arange(utterances), [len(each) for each in new])
    flat = np.array([score for each in new for score in each])
    chosen = choose(np.array(old), flat, of, size, threshold)
    first = 0
    for number, (olds, news) in enumerate(zip(old, new)):
        expected = surviving_places([*olds, *news], size, threshold)
        assert np.flatnonzero(chosen.kept[number]).tolist() == [place for place in expected if place < rows]
        comes = [place - first for place in chosen.added.tolist() if first <= place < first + len(news)]
        assert comes == [place - rows for place in expected if place >= rows]
        first += len(news)
        alone = surviving(np.array([olds]), size, threshold, None, 0)[0]
        assert np.flatnonzero(alone).tolist() == surviving_places(olds, size, threshold)
        # Every accepted new hypothesis has reached the floor of the old ones.
        floor = floor_of(np.array([olds]), size, threshold)[0]
        assert all(news[place] >= floor for place in comes)


def test_hypotheses_with_whole_words_are_retained_beyond_the_beam_size() -> None:
    """The best hypotheses without an unfinished word stay in any case, up to the stated count."""
    old, complete = np.array([[0.0, -1.0, -2.0, -3.0]]), np.array([[False, False, True, True]])
    assert surviving(old, 1, None, complete, 1).tolist() == [[True, False, True, False]]
    assert surviving(old, 1, 0.5, complete, 2).tolist() == [[True, False, True, True]]
    assert choose(old, np.array([1.0]), np.array([0]), 1, None, complete, 1).kept.tolist() == [
        [False, False, True, False]
    ]


@pytest.mark.parametrize("threshold, tokens", [(None, [(1,), (2,), ()]), (0.6, [(1,), (2,)]), (0.5, [(1,)])])
def test_a_threshold_drops_hypotheses_by_the_distance_of_their_scores(
    threshold: float | None, tokens: list[tuple[int, ...]]
) -> None:
    """ln 0.5 - ln 0.3 is 0.51, and ln 0.5 - ln 0.2 is 0.92."""
    decoder = CtcDecoder(3, 0, SearchOptions(beam_size=3, nbest=3, threshold=threshold))
    [hypotheses] = decoder.decode([np.log([[0.2, 0.5, 0.3]])])
    assert [each.tokens for each in hypotheses] == tokens


@pytest.mark.parametrize("seed, threshold", [(1, 0.5), (4, 1.0), (10, 1.0), (18, 1.0), (19, 2.0), (30, 0.5), (49, 4.0)])
def test_search_with_a_threshold_and_skipped_frames_equals_the_recorded_search(seed: int, threshold: float) -> None:
    """A recorded search checks every frame. Here a hypothesis falls below the threshold in a frame without new ones."""
    decoder, batch = peaked_problem(seed, threshold)
    for logits in batch:
        state = decoder.begin()
        decoder.advance(state, logits)
        assert list(decoder.explain(logits).hypotheses) == decoder.finish(state)
