"""Sampling against plain definitions: candidate order, frequencies, independence of steps and streams."""

from __future__ import annotations

import math
import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.speech.network import Scores
from workbench.speech.sampling import apply_guidance, draw, probability, uniforms

VALUES = st.sampled_from([-np.inf, -3.0, -1.5, -0.0, 0.0, 0.5, 2.0, 2.5, 40.0])  # with many equal ones


def slow_choice(row: list[float], temperature: float, top_k: int, number: float) -> int:
    """Returns the choice in a row by the definition: the first sorted id whose cumulative share passes `number`."""
    order = sorted(range(len(row)), key=lambda column: (-row[column], column))
    if temperature == 0:
        return order[0]
    order = [column for column in order if row[column] > -math.inf]
    order = order[:top_k] if top_k else order
    weights = [math.exp((row[column] - row[order[0]]) / temperature) for column in order]
    passed = 0.0
    for column, weight in zip(order, weights):
        passed += weight
        if passed > number * sum(weights):
            return column
    raise AssertionError("the number is not below 1")


@given(
    st.lists(st.lists(VALUES, min_size=7, max_size=7).filter(lambda row: max(row) > -np.inf), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    st.integers(0, 9),
    st.data(),
)
def test_sampled_ids_match_the_slow_definition(
    rows: list[list[float]], temperature: float, top_k: int, data: st.DataObject
) -> None:
    # These numbers lie between the steps of the cumulative sum, so rounding does not decide.
    numbers = [data.draw(st.sampled_from([0.0, 0.11, 0.3371, 0.7193, 0.98765])) for _ in rows]
    ids = draw(np.array(rows, dtype=np.float32), temperature, top_k, np.array(numbers)).columns
    assert ids.tolist() == [slow_choice(row, temperature, top_k, number) for row, number in zip(rows, numbers)]


def test_largest_random_number_chooses_an_allowed_id() -> None:
    logits = np.array([[0.0, 1.0, -np.inf, -np.inf], [-80.0, 0.0, -90.0, -100.0]], dtype=np.float32)
    almost = np.full(2, 1 - 2**-53)
    assert draw(logits, 1.0, 0, almost).columns[0] == 0
    assert draw(logits, 0.01, 0, almost).columns[1] == 1


def test_sampled_frequencies_match_the_softmax() -> None:
    logits = np.random.default_rng(3).normal(0, 1.5, (4, 11)).astype(np.float32)
    logits[1, 4:] = -np.inf
    temperature, top_k, draws = 0.8, 5, 5000
    counts = np.zeros(logits.shape)
    for step in range(draws):
        counts[np.arange(4), draw(logits, temperature, top_k, uniforms(7, step, 4)).columns] += 1
    candidates = np.where(logits >= np.sort(logits, axis=1)[:, -top_k][:, None], logits, -np.inf)
    weights = np.exp(candidates / temperature)
    expected = weights / weights.sum(axis=1, keepdims=True)
    assert np.abs(counts / draws - expected).max() < 4 * 0.5 / draws**0.5  # four standard errors at most
    assert (counts[expected == 0] == 0).all()


def test_random_numbers_depend_only_on_seed_step_and_stream() -> None:
    table = np.array([uniforms(5, step, 8) for step in range(100)])
    assert ((table >= 0) & (table < 1)).all()
    assert len(np.unique(table)) == table.size
    assert np.array_equal(uniforms(5, 42, 8), table[42])
    assert np.array_equal(uniforms(5, 42, 3), table[42, :3])
    assert not np.array_equal(uniforms(6, 42, 8), table[42])
    assert uniforms((1 << 53) - 1, 1 << 20, 8).shape == (8,)


def test_random_numbers_equal_the_philox_reference() -> None:
    """Answers are reproduced on other machines, so these numbers must never change."""
    assert uniforms(3, 9, 5).tolist() == [number / 2**53 for number in philox(3, 9, 5)]


def philox(seed: int, step: int, count: int) -> list[int]:
    """Philox4x64-10 by its paper, 53 high bits of each word."""
    low, words = (1 << 64) - 1, list[int]()
    for block in range(1, count // 4 + 2):
        state, keys = [block, step, 0, 0], [seed, 0]
        for _ in range(10):
            one, two = 0xD2E7470EE14C6C93 * state[0], 0xCA5A826395121157 * state[2]
            state = [(two >> 64) ^ state[1] ^ keys[0], two & low, (one >> 64) ^ state[3] ^ keys[1], one & low]
            keys = [(keys[0] + 0x9E3779B97F4A7C15) & low, (keys[1] + 0xBB67AE8584CAA73B) & low]
        words += state
    return [word >> 11 for word in words[:count]]


def test_guidance_combines_conditional_and_null_logits_for_every_id() -> None:
    source = np.random.default_rng(1)
    main, codec = source.normal(size=(2, 6)).astype(np.float32), source.normal(size=(2, 3, 4)).astype(np.float32)
    first, others = apply_guidance(Scores(main, codec), 3.0)
    assert others is not None
    assert np.allclose(first, 3 * main[0] - 2 * main[1]) and np.allclose(others, 3 * codec[0] - 2 * codec[1])
    assert first.dtype == np.float32
    alone, none = apply_guidance(Scores(main[:1], None), 3.0)
    assert np.array_equal(alone, main[0]) and none is None


def test_probabilities_equal_the_softmax() -> None:
    logits = np.array([[0.0, 1.0, 2.0], [5.0, -np.inf, 5.0]], dtype=np.float32)
    probabilities = probability(logits, np.array([2, 0]))
    assert np.allclose(probabilities, [math.exp(2) / (1 + math.e + math.exp(2)), 0.5])


def test_sampling_eight_streams_takes_less_than_half_a_millisecond() -> None:
    logits = np.random.default_rng(0).normal(size=(8, 1027)).astype(np.float32)
    best = math.inf
    for step in range(50):
        started = time.perf_counter()
        draw(logits, 0.8, 20, uniforms(1, step, 8))
        best = min(best, time.perf_counter() - started)
    assert best < 0.4e-3
