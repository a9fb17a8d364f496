"""Comparison of logits: KL divergence and top-k agreement against slow definitions, near ties, deciding rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from workbench.compare.tokens.logits import (
    Choice,
    choice_among,
    choice_at,
    deciding_row,
    explain_logits,
    measure_logits,
    spread_of,
)

LOGITS = npst.arrays(np.float32, (4, 9), elements=st.floats(-30, 30, width=32))


def softmax(row: np.ndarray) -> list[float]:
    powers = [math.exp(x - float(row.max())) for x in row.tolist()]
    return [power / math.fsum(powers) for power in powers]


@given(LOGITS, LOGITS)
def test_kl_and_top1_agreement_match_their_definitions(reference: np.ndarray, candidate: np.ndarray) -> None:
    measures = measure_logits(reference, candidate)
    divergence = [
        math.fsum(p * math.log(p / q) for p, q in zip(softmax(r), softmax(c)))
        for r, c in zip(reference.astype(np.float64), candidate.astype(np.float64))
    ]
    assert measures.kl_mean == pytest.approx(sum(divergence) / 4, rel=1e-6, abs=1e-12)
    assert measures.kl_max == pytest.approx(max(divergence), rel=1e-6, abs=1e-12)
    assert divergence[measures.kl_worst_row] == pytest.approx(max(divergence), rel=1e-6, abs=1e-12)
    same = [int(r.argmax()) == int(c.argmax()) for r, c in zip(reference, candidate)]
    assert measures.top1_agreement == sum(same) / 4 and measures.flips == 4 - sum(same) and measures.rows == 4


@given(
    npst.arrays(np.float32, (3, 9), elements=st.floats(-9, 9, width=32), unique=True),
    npst.arrays(np.float32, (3, 9), elements=st.floats(-9, 9, width=32), unique=True),
)
def test_top5_overlap_matches_its_definition(reference: np.ndarray, candidate: np.ndarray) -> None:
    best = [[set(sorted(range(9), key=row.__getitem__)[-5:]) for row in side] for side in (reference, candidate)]
    expected = sum(len(r & c) / 5 for r, c in zip(*best)) / 3
    assert measure_logits(reference, candidate).top_overlap == pytest.approx(expected)


@given(LOGITS, st.permutations(range(4)), st.permutations(range(9)), st.floats(-5, 5, width=32))
def test_kl_is_unchanged_by_row_order_column_order_and_a_constant(
    reference: np.ndarray, rows: list[int], columns: list[int], constant: float
) -> None:
    candidate = reference[::-1].copy()
    plain = measure_logits(reference, candidate)
    moved = measure_logits(reference[rows][:, columns], candidate[rows][:, columns].astype(np.float64) + constant)
    assert moved.kl_mean == pytest.approx(plain.kl_mean, rel=1e-5, abs=1e-9)
    assert moved.kl_max == pytest.approx(plain.kl_max, rel=1e-5, abs=1e-9)


def test_equal_logits_have_zero_kl_with_banned_tokens_ignored() -> None:
    logits = np.array([[0.0, -np.inf, 3.0], [1.0, 2.0, -np.inf]])
    measures = measure_logits(logits, logits)
    assert (measures.kl_mean, measures.top1_agreement, measures.top_overlap) == (0, 1, 1)
    banned = measure_logits(np.zeros((1, 3)), np.array([[0.0, 0.0, -np.inf]]))
    assert banned.kl_mean == math.inf
    assert measure_logits(np.zeros((1, 3)), np.full((1, 3), np.nan)).kl_mean == math.inf
    assert measure_logits(np.zeros((0, 3)), np.zeros((0, 3))).top1_agreement == 1


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_non_finite_rows_match_only_identical_rows(strange: float) -> None:
    logits = np.array([[1.0, strange, 2.0], [1.0, 2.0, 3.0]])
    assert measure_logits(logits, logits.copy()).kl_max == 0
    measures = measure_logits(logits, logits + [[1.0], [0.0]])
    assert (measures.kl_max, measures.kl_worst_row) == (math.inf, 0)


@pytest.mark.parametrize("error", [0.0, 1e-3])
def test_log_softmax_and_softmax_are_recognised(error: float) -> None:
    rng = np.random.default_rng(0)
    logits = 10 * rng.standard_normal((12, 40))
    constants = np.log(np.exp(logits).sum(axis=1, keepdims=True))
    hint = explain_logits(logits, logits - constants + error * rng.standard_normal(logits.shape))
    assert hint and hint.startswith("each row is the reference's plus a constant, as after log-softmax")
    assert explain_logits(logits, np.exp(logits - constants)) == (
        "each row is nonnegative and has the sum 1, like probabilities: a softmax was taken"
    )
    assert explain_logits(logits, logits + 0.03 * rng.standard_normal(logits.shape)) is None
    assert explain_logits(logits, logits[::-1]) is None


def test_near_tie_needs_small_margins_on_both_sides() -> None:
    r = np.array([[0.0, 5.0, 5.0 - 1e-5, 1.0]])
    c = np.array([[0.0, 5.0, 5.0 + 1e-5, 1.0]])
    tie = choice_at(r, c, 0)
    assert tie is not None and (tie.reference_token, tie.candidate_token) == (1, 2)
    assert tie.reference_margin == pytest.approx(1e-5) and tie.candidate_margin == pytest.approx(1e-5)
    assert tie.spread == pytest.approx(r[0].std())
    assert tie.is_near_tie(1e-4) and not tie.is_near_tie(1e-8)
    clear = choice_at(r, np.array([[0.0, 5.0, 6.0, 1.0]]), 0)
    assert clear is not None and not clear.is_near_tie(1e-4)
    assert choice_at(r, r, 0) is None
    assert choice_at(r, np.full((1, 4), np.nan), 0) is None


def step(*pairs: tuple[int, float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([number for number, _ in pairs]), np.array([value for _, value in pairs])


def test_margins_from_alternatives_match_margins_from_logits() -> None:
    rng = np.random.default_rng(0)
    r = rng.normal(0, 3, 50)
    c = r + rng.normal(0, 1e-3, 50)
    one, other = np.argsort(-r)[:2]
    c[other] = c[one] + 1e-4
    full_choice = choice_at(r[None], c[None], 0)
    best = [np.argsort(-side)[:10] for side in (r, c)]
    sides = [(ids, side[ids] - np.log(np.exp(side).sum())) for ids, side in zip(best, (r, c))]
    choice = choice_among(sides[0], sides[1], (int(one), int(other)), spread_of(r))
    assert full_choice is not None and choice is not None and choice.row is None
    assert choice.reference_margin == pytest.approx(full_choice.reference_margin)
    assert (
        choice.candidate_margin == pytest.approx(full_choice.candidate_margin) and choice.spread == full_choice.spread
    )
    assert not (choice.reference_at_least or choice.candidate_at_least)


def test_token_missing_from_alternatives_gives_a_lower_bound_of_the_margin() -> None:
    reference, candidate = step((3, -0.1), (4, -0.2), (5, -9.0)), step((8, -0.5), (3, -0.6), (5, -4.5))
    choice = choice_among(reference, candidate, (3, 8), 1.0)
    assert choice is not None and (choice.reference_at_least, choice.candidate_at_least) == (True, False)
    assert choice.reference_margin == pytest.approx(8.9) and choice.candidate_margin == pytest.approx(0.1)
    neither = choice_among(reference, step((8, -0.5), (5, -4.5)), (3, 8), 1.0)
    assert neither is not None and neither.reference_at_least and neither.candidate_at_least
    close = choice_among(step((3, -2.0), (4, -2.0)), step((8, -2.0), (3, -2.0)), (3, 8), 1.0)
    assert close is not None and not close.is_near_tie(1.0), "how much more, nobody knows"
    assert choice_among(reference, candidate, (7, 8), 1.0) is None, "drawn, and none of the likeliest"
    banned = choice_among(step((3, -0.1), (8, -np.inf), (4, -3.0)), candidate, (3, 8), 1.0)
    assert banned is not None and banned.reference_at_least and banned.reference_margin == pytest.approx(2.9)


def test_near_tie_is_independent_of_the_scale_of_logits() -> None:
    small = Choice(0, 1, 2, 1e-4, 1e-4, 1.0)
    large = Choice(0, 1, 2, 1e-1, 1e-1, 1e3)
    for noise in (1e-6, 1e-5, 1e-4, 1e-3):
        assert small.is_near_tie(noise) == large.is_near_tie(noise)


def one_hot(path: list[int], vocabulary: int = 6) -> np.ndarray:
    return np.eye(vocabulary)[path]


def ids(path: list[int], blank: int) -> np.ndarray:
    """Returns the tokens of a CTC path by the definition."""
    tokens, last = [], None
    for token in path:
        if token != last and token != blank:
            tokens.append(token)
        last = token
    return np.array(tokens, int)


@pytest.mark.parametrize(
    "reference, candidate, row",
    [
        ([0, 1, 1, 0, 2], [0, 1, 0, 0, 3], 4),  # another token; the shorter run decided nothing
        ([0, 1, 0, 0, 2], [0, 1, 0, 3, 2], 3),  # one more
        ([0, 1, 0, 1, 2], [0, 1, 1, 1, 2], 2),  # two that have become one
        ([1, 0, 0], [1, 0, 2], 2),  # one at the end
        ([1, 0, 2], [1, 0, 0], 2),
        ([0, 0, 1], [0, 0, 2], 2),
    ],
)
@pytest.mark.parametrize("blank", [0, 5])
def test_deciding_frame_of_a_ctc_token_is_found(
    reference: list[int], candidate: list[int], row: int, blank: int
) -> None:
    paths = [[blank if token == 0 else token for token in path] for path in (reference, candidate)]
    tokens = ids(paths[0], blank), ids(paths[1], blank)
    place = next((n for n, (a, b) in enumerate(zip(*tokens)) if a != b), min(len(tokens[0]), len(tokens[1])))
    assert deciding_row(one_hot(paths[0]), one_hot(paths[1]), tokens, place) == row


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.data())
def test_deciding_frame_has_different_best_tokens(path: list[int], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.integers(0, 5), min_size=len(path), max_size=len(path)))
    tokens = ids(path, 0), ids(other, 0)
    place = next((n for n, (a, b) in enumerate(zip(*tokens)) if a != b), min(map(len, tokens)))
    if list(tokens[0]) == list(tokens[1]) or len(path) in map(len, tokens):
        return
    row = deciding_row(one_hot(path), one_hot(other), tokens, place)
    assert row is None or path[row] != other[row]


def test_deciding_row_is_found_by_token_and_prompt_length() -> None:
    logits, tokens = np.zeros((3, 6)), (np.array([1, 2, 3]), np.array([1, 4, 3]))
    assert deciding_row(logits, logits, tokens, 1) == 1
    assert deciding_row(np.zeros((5, 6)), np.zeros((5, 6)), tokens, 0, prompt=5) == 4
    assert deciding_row(np.zeros((5, 6)), np.zeros((5, 6)), tokens, 1, prompt=5) is None
    assert deciding_row(np.zeros((8, 6)), np.zeros((8, 6)), tokens, 1, prompt=5) == 5
    assert deciding_row(one_hot([1, 1, 2, 2, 5]), one_hot([1, 1, 2, 2, 5]), tokens, 1) is None, "of another decoding"
