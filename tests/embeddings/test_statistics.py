"""The numbers that are said of an embedding are those of its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.embeddings.statistics import norms, statistics_of

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=FINITE))
def test_norms_are_those_of_float64(values: np.ndarray) -> None:
    found = norms(values)
    assert found.dtype == np.float64 and np.isfinite(found).all()
    assert found == pytest.approx(np.linalg.norm(values.astype(np.float64), axis=1), rel=1e-12)


def test_an_embedding_in_numbers() -> None:
    values = np.array([[3, 4, 0, 0], [3, 4, 0, 0], [0, 0, 0, -1], [0, 0, 0, 12]], np.float32)
    found = statistics_of(values)
    assert (found.tokens, found.hidden, found.lowest, found.highest) == (4, 4, -1.0, 12.0)
    assert (found.shortest, found.median, found.longest) == (1.0, 5.0, 12.0)
    assert found.zeros == 10 / 16 and found.repeated == 1
    assert statistics_of(values[:1]).repeated == 0
