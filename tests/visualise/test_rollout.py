"""Attention rollout against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.visualise.rollout import rollout


def weights(seed: int, layers: int, heads: int, rows: int) -> list[np.ndarray]:
    drawn = np.random.default_rng(seed).random((layers, heads, rows, rows)).astype(np.float32)
    return list(drawn / drawn.sum(axis=-1, keepdims=True))


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 3), st.integers(1, 7))
def test_attention_rollout_matches_its_definition_and_rows_sum_to_1(
    seed: int, layers: int, heads: int, rows: int
) -> None:
    given = weights(seed, layers, heads, rows)
    found = rollout(given)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-9)
    slow = np.eye(rows)
    for layer in given:
        step = [
            [0.5 * (i == j) + 0.5 * np.mean([head[i][j] for head in layer]) for j in range(rows)] for i in range(rows)
        ]
        slow = np.array(step) @ slow
    np.testing.assert_allclose(found, slow, atol=1e-6)


def test_causal_rollout_is_lower_triangular_and_empty_layers_are_refused() -> None:
    causal = np.tril(np.ones((2, 6, 6)))
    found = rollout([causal / causal.sum(axis=-1, keepdims=True)] * 3)
    assert np.triu(found, 1).max() == 0 and found[5].min() > 0
    with pytest.raises(ValueError, match="a layer"):
        rollout([])


def test_half_precision_attention_rows_are_renormalised() -> None:
    given = [layer.astype(np.float16) for layer in weights(1, 3, 2, 40)]
    np.testing.assert_allclose(rollout(given).sum(axis=1), 1, atol=1e-12)
