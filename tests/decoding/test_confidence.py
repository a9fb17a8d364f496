"""Token probabilities as confidence: against scipy's softmax, and with non-finite logits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from workbench.decoding.confidence import finite_or_none, probabilities

ROWS = arrays(np.float64, (4, 7), elements=st.floats(-1e4, 1e4))


@given(ROWS, arrays(np.int64, 4, elements=st.integers(0, 6)))
def test_token_confidence_is_the_softmax_probability(logits: np.ndarray, ids: np.ndarray) -> None:
    expected = softmax(logits, axis=1)[np.arange(4), ids]
    np.testing.assert_allclose(probabilities(logits, ids), expected, rtol=1e-9, atol=1e-300)


def test_confidence_of_empty_and_non_finite_logits() -> None:
    assert probabilities(np.empty((0, 5)), np.empty(0, int)).shape == (0,)
    confidences = probabilities(np.array([[np.nan, 1.0], [-np.inf, -np.inf], [-np.inf, 0.0]]), np.array([0, 1, 1]))
    assert [finite_or_none(each) for each in confidences.tolist()] == [None, None, 1.0]
