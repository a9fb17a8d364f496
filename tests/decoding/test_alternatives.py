"""The most likely tokens of a decoding step against a slow definition, and their recording as stages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.decoding.alternatives import AlternativesRecorder, check_alternatives, likeliest
from workbench.decoding.generation import Decoding

LOGITS = st.one_of(st.floats(-80, 80), st.sampled_from([0.0, 1.0, -np.inf, np.nan]))


def slow_likeliest(logits: list[float], count: int) -> list[tuple[int, float]]:
    """Returns (id, log-probability) of the likeliest ids, by a full sort and an exact sum."""
    scores = [-math.inf if math.isnan(logit) else logit for logit in logits]
    order = sorted(range(len(scores)), key=lambda number: (-scores[number], number))[:count]
    most = max(scores)
    if most == -math.inf:
        return [(number, -math.inf) for number in order]
    log_sum = most + math.log(math.fsum(math.exp(score - most) for score in scores))
    return [(number, scores[number] - log_sum) for number in order]


@given(st.lists(LOGITS, min_size=1, max_size=30), st.integers(1, 20))
def test_likeliest_tokens_match_the_slow_definition(logits: list[float], count: int) -> None:
    ids, logprobs = likeliest(np.array([logits, logits[::-1]]), count)
    for row, row_logits in enumerate((logits, logits[::-1])):
        expected = slow_likeliest(row_logits, count)
        assert ids[row].tolist() == [number for number, _ in expected], "ties by the lower id"
        np.testing.assert_allclose(logprobs[row], [value for _, value in expected], rtol=1e-12, atol=1e-12)
    assert ids.dtype == np.int64 and logprobs.dtype == np.float64


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=40), st.floats(-30, 30))
def test_logprobs_of_all_tokens_sum_to_one_and_ignore_a_logit_shift(logits: list[float], shift: float) -> None:
    row = np.array([logits])
    ids, logprobs = likeliest(row, len(logits))
    assert sorted(ids[0].tolist()) == list(range(len(logits)))
    assert np.exp(logprobs).sum() == pytest.approx(1) and (np.diff(logprobs[0]) <= 0).all()
    np.testing.assert_allclose(likeliest(row + shift, len(logits))[1], logprobs, atol=1e-9)


def test_float32_is_summed_in_float64() -> None:
    logits = np.zeros((1, 1 << 20), np.float32)
    ids, logprobs = likeliest(logits, 3)
    assert ids.tolist() == [[0, 1, 2]]
    np.testing.assert_allclose(logprobs, -20 * math.log(2), rtol=1e-13)


def test_likeliest_count_is_limited_by_the_vocabulary_size() -> None:
    ids, logprobs = likeliest(np.array([[0.0, 1.0]]), 5)
    assert ids.tolist() == [[1, 0]] and logprobs.shape == (1, 2)


def test_alternatives_with_beam_search_are_refused() -> None:
    check_alternatives(Decoding((), beam_size=3))
    check_alternatives(Decoding((), alternatives=3))
    with pytest.raises(BadInput, match=r"^alternatives is 2 and beam_size 3, .* set beam_size to 1, or alternatives"):
        check_alternatives(Decoding((), beam_size=3, alternatives=2))


@pytest.mark.parametrize(
    "changes", [{"temperature": 0.5}, {"beam_size": 2}, {"repetition_penalty": 1.1}, {"min_new_tokens": 1}]
)
def test_decoding_is_plain_only_with_greedy_defaults(changes: dict[str, float]) -> None:
    assert Decoding((1,), max_new_tokens=3).is_greedy and not Decoding((1,), **changes).is_greedy  # type: ignore[arg-type]


def test_recorded_alternatives_become_stages() -> None:
    watched = AlternativesRecorder(row=1)
    empty = watched.stages()
    assert all(array.size == 0 and array.ndim == 2 for array in empty.values())
    for row, first in ((0, 9), (1, 5), (1, 6)):
        watched(row, np.array([first, 1]), np.array([-0.5, -1.5]))
    stages = watched.stages()
    assert stages["tokens.alternatives"].tolist() == [[5, 1], [6, 1]]
    assert stages["tokens.logprobs"].tolist() == [[-0.5, -1.5]] * 2
    assert [array.dtype for array in stages.values()] == [np.int64, np.float32]
    assert [array.dtype for array in empty.values()] == [np.int64, np.float32]
