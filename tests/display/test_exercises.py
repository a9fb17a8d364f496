"""An answer to an exercise is judged, whatever it is, and a wrong one is told what is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from workbench.display import check_answer


@pytest.mark.parametrize(
    ("answer", "right", "verdict"),
    [
        (..., 1, "not tried yet"),
        (0.5, 0.5, "right"),
        (np.float32(0.504), 0.5, "right"),
        (torch.tensor(0.504), 0.5, "right"),
        (0.7, 0.5, "not yet; it is too large"),
        (-7, 0.5, "not yet; it is too small"),
        ("0.5 %", 0.5, "not yet; it should be a number"),
        (float("nan"), 0.5, "not yet; it should be a number"),
        (np.array([0.5, 5.0]), 0.5, "not yet; it should be a number"),
        (torch.tensor([0.5, 5.0]), 0.5, "not yet; it should be a number"),
        ([[1, 2], [1]], 3, "not yet; it should be a number"),
        (None, -4.6, "not yet; it should be a number"),
        (print, 0.5, "not yet; it should be a number"),
        (" encoder.layers.6.attention", "encoder.layers.6.attention", "right"),
        ("Stream 0", "stream 0", "right"),
        ("encoder.layers.5", "encoder.layers.6.attention", "not yet; it is another text"),
        (6, "encoder.layers.6.attention", "not yet; it should be a text in quotes"),
        ((998, 167), (998, 167), "right"),
        ([998, 167], (998, 167), "right"),
        (np.array([998, 167]), (998, 167), "right"),
        ((998, 167, 0), (998, 167), "not yet; expected 2 values with a comma between them"),
        (998, (998, 167), "not yet; expected 2 values with a comma between them"),
        ("998, 167", (998, 167), "not yet; expected 2 values with a comma between them"),
        ((1000, 167), (998, 167), "not yet; the first value is too large"),
        ((998, 166), (998, 167), "not yet; the second value is too small"),
        ((998, ...), (998, 167), "not yet; the second value is not tried yet"),
        ((3, "three"), ("three", 3), "not yet; the first value should be a text in quotes"),
        ((..., ...), ("three", 3), "not tried yet"),
    ],
)
def test_answer_is_judged_with_what_is_wrong(answer: Any, right: Any, verdict: str) -> None:
    assert check_answer(answer, right, tolerance=0.005) == verdict
    hinted = "not yet" in verdict
    assert check_answer(answer, right, 0.005, hint="count the rows") == verdict + "\nHint: count the rows" * hinted
