"""Arrays are close if the relative L2 of their difference is small, wherever they differ."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.compare.guesses.guess import is_close, relative_l2


@given(
    rows=st.sampled_from((1, 15, 16, 17, 400)),
    width=st.sampled_from((1, 3, 512)),
    changed=st.integers(0, 399),
    change=st.sampled_from((0.0, 1e-9, 1e-3, 1.0, 1e200, np.nan, np.inf)),
    everywhere=st.booleans(),
    allowed=st.sampled_from((0.0, 1e-6, 1e-2, 1.0)),
)
def test_arrays_are_close_by_all_their_rows(
    rows: int, width: int, changed: int, change: float, everywhere: bool, allowed: float
) -> None:
    expected = np.random.default_rng(0).standard_normal((rows, width))
    values = expected.copy()
    values[slice(None) if everywhere else changed % rows] += change
    assert is_close(expected, values, allowed) == (relative_l2(expected, values) <= allowed)


@pytest.mark.parametrize("expected", [np.zeros((400, 512)), np.full((400, 512), np.nan), np.full((400, 512), np.inf)])
def test_nothing_is_close_to_zeros_or_to_what_is_not_finite(expected: np.ndarray) -> None:
    assert not is_close(expected, expected, 1.0)
    assert not is_close(expected, np.ones((400, 512)), 1.0)


def test_values_of_each_row_may_be_given_once() -> None:
    row = np.arange(512.0)
    assert is_close(np.tile(row, (400, 1)), row, 0.0) and not is_close(np.tile(row, (400, 1)), row + 1, 1e-4)
