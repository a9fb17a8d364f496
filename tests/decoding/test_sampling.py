"""Token selection with numpy against transformers' logits processors, and sampling against probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from workbench.decoding.generation import Decoding
from workbench.decoding.sampling import TokenSampler

STOPS = (3, 11)
ANY = Decoding(STOPS, temperature=1.0)


def transformers_scores(decoding: Decoding, generated: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Returns the scores after transformers' own processors."""
    processors: list[Any] = []
    if decoding.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(decoding.repetition_penalty))
    if decoding.min_new_tokens:
        processors.append(MinLengthLogitsProcessor(decoding.min_new_tokens, list(decoding.stop_ids)))
    if decoding.samples:
        processors.append(TemperatureLogitsWarper(decoding.temperature))
        if decoding.top_k:
            processors.append(TopKLogitsWarper(decoding.top_k))
        if decoding.top_p < 1.0:
            processors.append(TopPLogitsWarper(decoding.top_p))
    scores = LogitsProcessorList(processors)(torch.from_numpy(generated), torch.from_numpy(logits.copy()))
    return scores.numpy()


@given(
    penalty=st.sampled_from([1.0, 0.5, 1.3, 3.0]),
    least=st.integers(0, 6),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 5, 40, 1000]),
    top_p=st.sampled_from([0.0, 0.1, 0.6, 0.95, 1.0]),
    batch=st.integers(1, 3),
    before=st.integers(0, 8),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=300, deadline=None)
def test_sampler_scores_equal_those_of_transformers(
    penalty: float, least: int, temperature: float, top_k: int, top_p: float, batch: int, before: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    logits = (draw.standard_normal((batch, 50)) * 3).astype(np.float32)
    generated = draw.integers(0, 50, (batch, before))
    original = logits.copy()
    decoding = replace(
        ANY, repetition_penalty=penalty, min_new_tokens=least, temperature=temperature, top_k=top_k, top_p=top_p
    )
    scores, expected = (
        TokenSampler(decoding).scores(generated, logits),
        transformers_scores(decoding, generated, logits),
    )
    np.testing.assert_array_equal(np.isinf(scores), np.isinf(expected))
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    np.testing.assert_array_equal(logits, original)


def test_scores_without_options_return_the_logits_uncopied() -> None:
    logits = np.zeros((2, 9), np.float32)
    assert TokenSampler(Decoding(STOPS)).scores(np.zeros((2, 3), np.int64), logits) is logits


def test_greedy_choice_is_the_first_of_the_likeliest_tokens() -> None:
    logits = np.array([[0, 5, 5, 1], [3, 2, 1, 0]], np.float32)
    assert TokenSampler(Decoding(()))(np.zeros((2, 0), np.int64), logits).tolist() == [1, 0]


def test_stop_token_is_not_chosen_before_min_new_tokens() -> None:
    logits = np.zeros((1, 20), np.float32)
    logits[0, [3, 11, 7]] = 9, 8, 1
    choose = TokenSampler(Decoding((*STOPS, 500), min_new_tokens=2))  # one stop id is outside the vocabulary
    assert [int(choose(np.zeros((1, count), np.int64), logits)[0]) for count in range(4)] == [7, 7, 3, 3]


def test_sampled_token_frequencies_match_the_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))[None].repeat(4000, axis=0)
    none = np.zeros((4000, 0), np.int64)
    tokens = TokenSampler(Decoding((), temperature=1.0, seed=7))(none, logits)
    shares = np.bincount(tokens, minlength=4) / len(tokens)
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.15, 0.05], atol=0.03)
    cut = TokenSampler(Decoding((), temperature=1.0, top_k=2, seed=7))(none, logits)
    np.testing.assert_allclose(np.bincount(cut, minlength=4) / len(cut), [0.625, 0.375, 0, 0], atol=0.03)


@pytest.mark.parametrize("constant", [-3000.0, 3000.0])
def test_a_constant_added_to_all_logits_changes_no_draw(constant: float) -> None:
    logits = np.random.default_rng(5).integers(-3, 4, (200, 12)).astype(np.float32)
    none = np.zeros((200, 0), np.int64)
    decoding = Decoding((), temperature=1.0, top_p=0.9, seed=7)
    np.testing.assert_array_equal(
        TokenSampler(decoding)(none, logits + np.float32(constant)), TokenSampler(decoding)(none, logits)
    )


def test_draws_are_repeatable_by_their_seed() -> None:
    logits = np.zeros((8, 100), np.float32)

    def sample(seed: int) -> list[int]:
        choose = TokenSampler(Decoding((), temperature=1.0, seed=seed))
        return [int(token) for _ in range(3) for token in choose(np.zeros((8, 0), np.int64), logits)]

    assert sample(1) == sample(1) != sample(2)


@pytest.mark.parametrize("number", [0.0, 0.9999999999999999])
def test_extreme_random_numbers_select_tokens_with_positive_probability(
    number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = np.array([[-np.inf, 1.0, 2.0, -np.inf]], np.float32)
    choose = TokenSampler(Decoding((), temperature=1.0))
    monkeypatch.setattr(choose, "_draw", type("Draw", (), {"random": lambda _, n: np.full(n, number)})())
    assert int(choose(np.zeros((1, 0), np.int64), logits)[0]) in (1, 2)
