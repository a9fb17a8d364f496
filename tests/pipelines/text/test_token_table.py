"""Rows of an embedding table, and the tokens nearest to given embeddings."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.core.errors import BadInput
from workbench.pipelines.text.token_table import Table, neighbours_of, rows_of

ROWS = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
TABLE = Table((50, 6), lambda first, last: ROWS[first:last])


def test_rows_of_ids_match_the_table() -> None:
    np.testing.assert_array_equal(rows_of(TABLE, [7, 0, 7], "m"), ROWS[[7, 0, 7]])
    assert rows_of(TABLE, [], "m").shape == (0, 6)
    for invalid in (-1, 50):
        with pytest.raises(BadInput, match=f"m has no token {invalid}; expected ids from 0 to 49"):
            rows_of(TABLE, [3, invalid], "m")


def test_token_embedding_is_nearest_to_itself() -> None:
    neighbours = neighbours_of(3 * ROWS[[4, 9]], TABLE, str, 2, "m")
    assert neighbours.ids[:, 0].tolist() == [4, 9] and [texts[0] for texts in neighbours.texts] == ["4", "9"]
    np.testing.assert_allclose(neighbours.cosines[:, 0], 1, atol=1e-6)
    np.testing.assert_array_equal(neighbours.sample, ROWS)
    with pytest.raises(BadInput, match="6"):
        neighbours_of(np.ones((1, 5)), TABLE, str, 2, "m")
