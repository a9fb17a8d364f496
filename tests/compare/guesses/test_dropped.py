"""Explanations of stages with dropout, as of a model that is not set to inference."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.compare import compare, judge
from workbench.compare.guesses.guess import Hint
from workbench.trace.trace import Trace

DRAW = np.random.default_rng(6)
X, BRANCH = DRAW.standard_normal((2, 40, 48))
REFERENCE = {"encoder.input": X, "encoder.layers.0": X + BRANCH}


def with_dropout(values: np.ndarray, rate: float) -> np.ndarray:
    return np.where(DRAW.random(values.shape) < rate, 0.0, values / (1 - rate))


def hint_of(changes: dict[str, np.ndarray]) -> Hint | None:
    reference, candidate = (
        Trace({name: each.astype(np.float32) for name, each in stages.items()}, {})
        for stages in (REFERENCE, {**REFERENCE, **changes})
    )
    return judge(compare(reference, candidate)).explanation


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.37])
def test_dropout_of_a_stage_and_of_what_is_added_is_named(rate: float) -> None:
    hint = hint_of({"encoder.input": with_dropout(X, rate)})
    assert hint is not None and hint.kind == "dropout"
    assert hint.sentence.startswith(f"it has dropout of {rate:.3g}: ") and "(`model.eval()`)" in hint.sentence
    hint = hint_of({"encoder.layers.0": X + with_dropout(BRANCH, rate)})
    assert hint is not None
    assert hint.sentence.startswith(f"what is added to encoder.input has dropout of {rate:.3g}: ")


def test_dropout_behind_a_relu_is_named() -> None:
    relu = np.maximum(X, 0)
    reference, candidate = (Trace({"encoder.input": each}, {}) for each in (relu, with_dropout(relu, 0.1)))
    hint = judge(compare(reference, candidate)).explanation
    assert hint is not None and hint.sentence.startswith("it has dropout of 0.1: ")


@pytest.mark.parametrize(
    "changed",
    [
        np.where(DRAW.random(X.shape) < 0.1, 0.0, X),  # without the factor
        np.where(DRAW.random(X.shape) < 0.1, 0.0, X * 2),  # with that of another rate
        np.where(np.arange(48) % 10 == 0, 0.0, X / 0.9),  # whole channels
        X / 0.9,
        DRAW.standard_normal(X.shape),
    ],
)
def test_other_zeros_and_factors_are_no_dropout(changed: np.ndarray) -> None:
    hint = hint_of({"encoder.input": changed})
    assert hint is None or hint.kind != "dropout"
