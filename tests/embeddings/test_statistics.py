"""Statistics of an embedding match their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.embeddings.statistics import norms, statistics_of

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=FINITE))
def test_norms_equal_float64_norms(values: np.ndarray) -> None:
    actual = norms(values)
    assert actual.dtype == np.float64 and np.isfinite(actual).all()
    assert actual == pytest.approx(np.linalg.norm(values.astype(np.float64), axis=1), rel=1e-12)


def test_statistics_of_a_hand_made_embedding() -> None:
    values = np.array([[3, 4, 0, 0], [3, 4, 0, 0], [0, 0, 0, -1], [0, 0, 0, 12]], np.float32)
    statistics = statistics_of(values)
    assert (statistics.tokens, statistics.hidden, statistics.lowest, statistics.highest) == (4, 4, -1.0, 12.0)
    assert (statistics.shortest, statistics.median, statistics.longest) == (1.0, 5.0, 12.0)
    assert statistics.zeros == 10 / 16 and statistics.repeated == 1
    assert statistics_of(values[:1]).repeated == 0
