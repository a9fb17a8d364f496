"""Greedy CTC against its definition: all paths, and the best alignment of the found tokens."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.decoding.ctc import CtcToken, collapse, greedy

# Whole numbers: sums are exact, and ties between paths do not depend on the order of adding.
SCORES = arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(2, 4)), elements=st.integers(-50, 50), unique=True)


def collapse_path(path: tuple[int, ...], blank: int) -> list[int]:
    """The definition: repeats removed first, then blanks."""
    without_repeats = [path[0], *(step for previous, step in pairwise(path) if step != previous)]
    return [token for token in without_repeats if token != blank]


@given(SCORES, st.integers(0, 1))
def test_greedy_ctc_equals_the_best_of_all_paths(scores: np.ndarray, blank: int) -> None:
    frames, vocabulary = scores.shape
    paths = product(range(vocabulary), repeat=frames)
    best = max(paths, key=lambda path: sum(float(scores[t, token]) for t, token in enumerate(path)))
    assert [token.id for token in greedy(scores, blank)] == collapse_path(best, blank)


@given(SCORES)
def test_greedy_ctc_spans_equal_the_forced_alignment_of_its_tokens(scores: np.ndarray) -> None:
    """The best path that collapses to the decoded tokens has each token on the frames of its span."""
    frames, vocabulary = scores.shape
    spans = greedy(scores)
    ids = [token.id for token in spans]
    best, score = None, -np.inf
    for path in product(range(vocabulary), repeat=frames):
        if collapse_path(path, 0) != ids:
            continue
        total = sum(float(scores[t, token]) for t, token in enumerate(path))
        if total > score:
            best, score = path, total
    assert best is not None
    reported = np.zeros(frames, dtype=int)
    for token in spans:
        reported[token.first : token.end] = token.id
    assert list(best) == reported.tolist()


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 3))
def test_collapsed_tokens_cover_every_non_blank_frame_once(path: list[int], blank: int) -> None:
    tokens = collapse(np.array(path, dtype=int), blank)
    assert [token.id for token in tokens] == (collapse_path(tuple(path), blank) if path else [])
    for token in tokens:
        assert set(path[token.first : token.end]) == {token.id}  # its frames are its own
        assert token.first == 0 or path[token.first - 1] != token.id  # and all of the run
        assert token.end == len(path) or path[token.end] != token.id
    assert sum(token.end - token.first for token in tokens) == sum(step != blank for step in path)


def test_a_blank_separates_repeats() -> None:
    assert collapse(np.array([1, 1, 0, 1, 2, 2])) == [CtcToken(1, 0, 2), CtcToken(1, 3, 4), CtcToken(2, 4, 6)]


@pytest.mark.parametrize("frames", [0, 1])
def test_all_blank_frames_give_no_tokens(frames: int) -> None:
    assert greedy(np.zeros((frames, 5), dtype=np.float32)) == []


def test_infinitely_unlikely_tokens_are_never_chosen() -> None:
    scores = np.full((3, 4), -np.inf, dtype=np.float32)
    scores[:, 2] = -1.0
    assert [token.id for token in greedy(scores)] == [2]
