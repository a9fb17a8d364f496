"""Principal components against a slow computation of the plane of largest variance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.embeddings.components import FITTED, principal


def reference_axes(values: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, largest first, and eigenvectors of the sum of both covariances about the common middle."""
    middle = (values.mean(axis=0) + others.mean(axis=0)) / 2
    covariances = [(kind - middle).T @ (kind - middle) / len(kind) for kind in (values, others)]
    powers, axes = np.linalg.eigh(covariances[0] + covariances[1])
    return powers[::-1], axes[:, ::-1]


@given(st.integers(1, 8), st.integers(1, 40), st.integers(2, 10), st.integers(0, 99))
def test_principal_plane_is_the_plane_of_largest_variance(tokens: int, rows: int, hidden: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    scale = np.geomspace(10, 0.1, hidden)
    values, others = draw.standard_normal((tokens, hidden)) * scale + 3, draw.standard_normal((rows, hidden)) * scale
    powers, axes = reference_axes(values, others)
    components = principal(values.astype(np.float32), others)
    assert components.shares == pytest.approx((powers[0] / powers.sum(), powers[1] / powers.sum()), rel=1e-4, abs=1e-6)
    middle = (values.mean(axis=0) + others.mean(axis=0)) / 2
    for kind, points in ((values, components.tokens), (others, components.others)):
        for axis in range(2 if tokens + rows > 2 else 1):
            expected = (kind - middle) @ axes[:, axis]
            assert np.abs(points[:, axis]) == pytest.approx(np.abs(expected), rel=1e-3, abs=1e-3 * powers[0] ** 0.5)


def test_number_of_comparison_rows_does_not_rotate_the_plane() -> None:
    draw = np.random.default_rng(0)
    values, others = draw.standard_normal((6, 5)), draw.standard_normal((20, 5))
    expected, repeated = principal(values, others), principal(values, np.concatenate([others] * 20))
    assert repeated.tokens == pytest.approx(expected.tokens) and repeated.shares == pytest.approx(expected.shares)
    assert len(principal(values, np.concatenate([others] * 100)).others) == 2000 > FITTED


@pytest.mark.parametrize(
    ("tokens", "rows", "hidden"), [(1, 0, 4), (3, 0, 4), (1, 1, 4), (3, 5, 1), (1, 0, 1), (0, 0, 3)]
)
def test_degenerate_values_give_zero_second_component(tokens: int, rows: int, hidden: int) -> None:
    components = principal(np.ones((tokens, hidden), np.float32), np.zeros((rows, hidden)))
    assert components.tokens.shape == (tokens, 2) and components.others.shape == (rows, 2)
    assert np.abs(components.tokens[:, 1]).max(initial=0) < 1e-12 and components.shares[1] < 1e-12
    assert np.isfinite(components.tokens).all()


def test_principal_components_of_the_largest_float32_values_are_finite() -> None:
    components = principal(np.array([[3e38, -3e38], [-3e38, 3e38]], np.float32), np.zeros((1, 2)))
    assert np.isfinite(components.tokens).all() and components.shares == pytest.approx((1, 0))


def test_axis_sign_follows_its_largest_channel() -> None:
    values = np.array([[0, 0, 0], [0, -5, 1]], np.float32)
    assert principal(values, np.zeros((0, 3))).tokens[0, 0] > principal(values, np.zeros((0, 3))).tokens[1, 0]
