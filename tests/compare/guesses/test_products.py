"""Explanations of a linear layer without its weights: a weight without its bias in another place, one wrong column."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.compare.test_explain import OTHER
from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Hint, Scene

LAYER = "encoder.layers.1."
ROWS, WIDTH, HEADS = 30, 24, 4
DRAW = np.random.default_rng(3)
X = DRAW.standard_normal((ROWS, WIDTH))
WEIGHTS = {name: DRAW.standard_normal((WIDTH, WIDTH)) for name in ("query", "key", "value")}
BIASES = {name: DRAW.standard_normal(WIDTH) for name in WEIGHTS}


def projected(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return (X @ weight.T + bias).reshape(ROWS, HEADS, -1).astype(np.float32)


STAGES = {
    f"{LAYER}input_norm": X.astype(np.float32),
    **{f"{LAYER}attention.{name}": projected(WEIGHTS[name], BIASES[name]) for name in WEIGHTS},
}


def hint_of(part: str, candidate: np.ndarray, stages: Mapping[str, np.ndarray] = STAGES) -> Hint | None:
    stage = f"{LAYER}attention.{part}"
    before = tuple(each for each in stages if each.endswith("norm"))
    return explain(Scene(stage, stages[stage], candidate, 1e-6, stages, stages, before), 1.0)


def test_projection_with_another_weight_and_the_right_bias_is_named() -> None:
    for part, other in (("query", "key"), ("key", "value"), ("value", "query")):
        hint = hint_of(part, projected(WEIGHTS[other], BIASES[part]))
        assert hint is not None and hint.kind == "other stage"
        sentence = f"it equals the reference's {LAYER}attention.{other} but for a constant in each channel: its weight"
        assert hint.sentence.startswith(sentence)


def test_heads_of_a_weight_in_another_order_than_its_bias_are_named() -> None:
    weight = WEIGHTS["query"].reshape(HEADS, -1, WIDTH)[[0, 2, 1, 3]].reshape(WIDTH, WIDTH)
    hint = hint_of("query", projected(weight, BIASES["query"]))
    assert hint is not None and hint.kind == "heads permuted"
    assert hint.sentence.startswith("heads 1, 2 hold what the reference has in heads 2, 1, but for a constant in each")


@pytest.mark.parametrize("times", [0.0, 0.5, -1.0])
def test_wrong_column_of_a_weight_is_named(times: float) -> None:
    weight = WEIGHTS["key"] * np.where(np.arange(WIDTH) == 7, times, 1.0)
    hint = hint_of("key", projected(weight, BIASES["key"]))
    assert hint is not None and hint.kind == "column"
    assert hint.sentence.startswith(f"column 7 of the 24 of its weight, which takes channel 7 of {LAYER}input_norm")


def test_two_wrong_columns_get_no_hint() -> None:
    weight = WEIGHTS["key"] * np.where(np.arange(WIDTH) < 2, 0.0, 1.0)
    assert hint_of("key", projected(weight, BIASES["key"])) is None


@pytest.mark.parametrize("kind", sorted(OTHER))
def test_unknown_change_of_a_projection_gets_no_hint(kind: str) -> None:
    for seed in range(3):
        flat = STAGES[f"{LAYER}attention.key"].reshape(ROWS, -1).astype(np.float64)
        changed = OTHER[kind](flat, np.random.default_rng(seed)).astype(np.float32)
        assert hint_of("key", changed.reshape(ROWS, HEADS, -1)) is None


def test_few_rows_show_no_column() -> None:
    few = {name: each[:6] for name, each in STAGES.items()}
    weight = WEIGHTS["key"] * (np.arange(WIDTH) != 7)
    assert hint_of("key", projected(weight, BIASES["key"])[:6], few) is None
