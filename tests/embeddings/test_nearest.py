"""The nearest rows of a table, against the plain definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.embeddings import nearest as module
from workbench.embeddings.nearest import nearest


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    length = np.linalg.norm(a.astype(np.float64)) * np.linalg.norm(b.astype(np.float64))
    return float(a.astype(np.float64) @ b.astype(np.float64) / length) if length else 0.0


@given(
    st.integers(1, 6),
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(1, 50),
    st.integers(1, 4096),
    st.integers(0, 2**32 - 1),
)
def test_nearest_rows_equal_a_comparison_of_all_pairs(
    tokens: int, rows: int, width: int, count: int, block: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(tokens, width)).astype(np.float32) * 10.0 ** rng.integers(-30, 30)
    table = rng.normal(size=(rows, width)).astype(np.float32)
    table[rng.integers(rows)] *= np.float32(10.0) ** rng.integers(-30, 30)  # the squares do not fit into float32
    table[rng.integers(rows)] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block)
        indices, cosines = nearest(values, table, count)
    assert indices.shape == cosines.shape == (tokens, min(count, rows))
    for value, row_indices, row_cosines in zip(values, indices, cosines):
        all_cosines = np.array([cosine(value, row) for row in table])
        np.testing.assert_allclose(row_cosines, np.sort(all_cosines)[::-1][: len(row_cosines)], atol=2e-6)
        np.testing.assert_allclose(all_cosines[row_indices], row_cosines, atol=2e-6)
        assert len(set(row_indices.tolist())) == len(row_indices)


def test_equally_near_rows_are_ordered_by_index() -> None:
    table = np.array([[0, 1], [2, 0], [1, 0], [3, 0]], np.float32)
    indices, cosines = nearest(np.array([[5, 0]], np.float32), table, 4)
    assert indices.tolist() == [[1, 2, 3, 0]] and cosines.tolist() == [[1, 1, 1, 0]]


def test_the_table_stays_unchanged() -> None:
    table = np.array([[1e-30, 1e-30], [1e30, 0], [0, 0], [1, 2]], np.float32)
    table.flags.writeable = False
    indices, cosines = nearest(np.array([[1, 1]], np.float32), table, 2)
    assert indices.tolist() == [[0, 3]] and cosines[0, 0] == pytest.approx(1)
