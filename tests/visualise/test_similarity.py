"""Linear CKA against its definition, and its invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.visualise.similarity import MAX_ROWS, cka_matrix, sampled


def slow_cka(one: np.ndarray, other: np.ndarray) -> float:
    """Kornblith et al. 2019, by the entries of HSIC: the trace of K H L H with H = I - 1/n."""
    rows = len(one)
    centre = np.eye(rows) - np.full((rows, rows), 1 / rows)

    def hsic(left: np.ndarray, right: np.ndarray) -> float:
        return float(np.trace(left @ left.T @ centre @ right @ right.T @ centre))

    return hsic(one, other) / np.sqrt(hsic(one, one) * hsic(other, other))


def fast_cka(one: np.ndarray, other: np.ndarray) -> float:
    return float(cka_matrix([one], [other])[0, 0])


def drawn(seed: int, rows: int, width: int) -> np.ndarray:
    found: np.ndarray = np.random.default_rng(seed).normal(size=(rows, width))
    return found


@given(st.integers(0, 10_000), st.integers(2, 20), st.integers(1, 12), st.integers(1, 12))
def test_cka_matches_its_definition_and_lies_between_0_and_1(seed: int, rows: int, width: int, other: int) -> None:
    a, b = drawn(seed, rows, width), drawn(seed + 1, rows, other)
    assert fast_cka(a, b) == pytest.approx(slow_cka(a, b), abs=1e-9)
    assert -1e-9 <= fast_cka(a, b) <= 1 + 1e-9


@given(st.integers(0, 10_000), st.floats(0.001, 1000), st.floats(-100, 100))
def test_cka_is_1_after_rotation_scaling_and_shift(seed: int, scale: float, shift: float) -> None:
    layer = drawn(seed, 12, 5)
    rotation, _ = np.linalg.qr(drawn(seed + 1, 5, 5))
    assert fast_cka(layer, scale * layer @ rotation + shift) == pytest.approx(1, abs=1e-6)


def test_cka_of_unrelated_layers_is_below_1_and_of_equal_rows_nan() -> None:
    layer = drawn(0, 30, 4)
    assert fast_cka(layer, drawn(1, 30, 4)) < 0.5
    assert np.isnan(fast_cka(layer, np.ones((30, 4))))


def test_a_matrix_has_a_row_for_each_layer_of_the_first_model() -> None:
    ones, others = [drawn(n, 9, 3) for n in range(2)], [drawn(n, 9, 4) for n in range(3)]
    found = cka_matrix(ones, others)
    assert found.shape == (2, 3) and found[1, 2] == pytest.approx(slow_cka(ones[1], others[2]))
    with pytest.raises(ValueError, match="same rows"):
        cka_matrix(ones, [drawn(0, 8, 3)])


def test_long_layers_are_sampled_from_end_to_end() -> None:
    assert sampled(5).tolist() == [0, 1, 2, 3, 4]
    rows = sampled(10_000)
    assert len(rows) == MAX_ROWS and rows[0] == 0 and rows[-1] == 9999
