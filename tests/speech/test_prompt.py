"""Prompts of ids and embeddings, with an embedding function that shows its input ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.speech_layouts import LAYOUT, layouts
from workbench.core.errors import BadInput
from workbench.speech.layout import SpeechLayout
from workbench.speech.prompt import embedded


def embed(rows: np.ndarray) -> np.ndarray:
    return rows.sum(axis=1, dtype=np.float32)[:, None]


def test_id_rows_are_embedded_and_embeddings_pass_unchanged() -> None:
    rows, embeddings = np.full((2, LAYOUT.streams), 3), np.ones((4, 1), dtype=np.float32)
    first, second = embedded([rows, embeddings], LAYOUT, 7, embed)
    assert first.tolist() == [[3.0 * LAYOUT.streams]] * 2
    assert second is embeddings


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt has 0 positions; the model has room for 7"),
        ([np.zeros((7, LAYOUT.streams), dtype=np.int64)], "the prompt has 7 positions; the model has room for 7"),
        ([np.zeros((2, 1), dtype=np.int64)], r"the shape \(2, 1\); expected \[rows, "),
        ([np.full((1, LAYOUT.streams), LAYOUT.vocabulary)], f"expected 0 to {LAYOUT.vocabulary - 1}"),
        ([np.full((1, LAYOUT.streams), -1)], "ids from -1 to -1"),
    ],
)
def test_invalid_prompt_parts_are_refused(prompt: list[np.ndarray], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        embedded(prompt, LAYOUT, 7, embed)


@given(layouts(), st.data())
def test_only_pads_of_later_streams_are_not_counted(layout: SpeechLayout, data: st.DataObject) -> None:
    ids = st.integers(0, layout.vocabulary - 1) | st.just(layout.pad)
    rows = np.array(data.draw(st.lists(st.tuples(*[ids] * layout.streams), min_size=1, max_size=3)))
    expected = [[n == 0 or number != layout.pad for n, number in enumerate(row)] for row in rows.tolist()]
    assert layout.counted(rows).tolist() == expected
