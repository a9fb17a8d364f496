"""What a request carries, there and back, and what is refused of what a server's client may send."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.speech_layouts import LAYOUT
from workbench.core.errors import BadInput
from workbench.runtimes.vllm.streams.asked import ARGUMENT, Asked, columns, read, row_of, spans_of
from workbench.speech.plan import AnswerPlan


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 3))
def test_the_rows_of_a_prompt_arrive(spoken: list[bool], start: int) -> None:
    rows = np.array([LAYOUT.pads + n % 5 if each else LAYOUT.row(n) for n, each in enumerate(spoken)]).reshape(-1, 5)
    asked = Asked(AnswerPlan("audio", seed=7), spans_of(rows, start, LAYOUT), True)
    found = read({ARGUMENT: asked.written(), "other": 1}, LAYOUT, start + len(rows))
    assert found is not None and found.plan == asked.plan and found.probabilities
    told = {first + n: row.tolist() for first, each in found.spans for n, row in enumerate(each)}
    assert told == {start + n: row.tolist() for n, row in enumerate(rows) if spoken[n]}
    assert len(found.spans) == sum(now and not before for before, now in zip([False, *spoken], spoken))


@pytest.mark.parametrize(
    "given",
    [
        "text",
        7,
        [],
        {},
        {"plan": {"modalities": "smell"}, "spans": [], "probabilities": False},
        {"plan": {"modality": "text"}, "spans": [], "probabilities": False},
        {"plan": {"cfg": 3.0}, "spans": [], "probabilities": False},
        {"plan": {}, "spans": [[0, 2, b"short"]], "probabilities": False},
        {"plan": {}, "spans": [[0, 1, "text"]], "probabilities": False},
        {"plan": {}, "spans": [[9, 1, bytes(20)]], "probabilities": False},
        {"plan": {}, "spans": [[-1, 1, bytes(20)]], "probabilities": False},
        {"plan": {}, "spans": [[0, 1, b"\xff" * 20]], "probabilities": False},
        {"plan": {}, "spans": 3, "probabilities": False},
    ],
)
def test_other_values_are_refused(given: Any) -> None:
    with pytest.raises(BadInput):
        read({ARGUMENT: given}, LAYOUT, 9)
    assert read({}, LAYOUT, 9) is None and read(None, LAYOUT, 9) is None


@pytest.mark.parametrize("spoken", [True, False])
def test_a_position_comes_back(spoken: bool) -> None:
    row = LAYOUT.pads + [3, 0, 1, 5, 2] if spoken else LAYOUT.row(LAYOUT.eos)
    told = np.array([0.5, 0.25, 1.0, 0.125, 0.0625]) if spoken else np.array([0.75, *[np.nan] * 4])
    ids, numbers = columns(row, told)
    found, probabilities = row_of(int(row[0]), dict(zip(ids.tolist(), numbers.tolist())), LAYOUT)
    assert found.tolist() == row.tolist()
    np.testing.assert_array_equal(probabilities, told)
