"""Explanations of a linear layer whose weight is known: transposed, rounded, another layer's, another input or bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.compare.test_explain import OTHER
from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Hint, Linear, Scene
from workbench.compare.guesses.rounding import rounded_to_bfloat16, rounded_to_float16

LAYER = "encoder.layers.1."
ROWS, WIDTH, WIDE, HEADS = 20, 32, 64, 4
DRAW = np.random.default_rng(5)
X, BEFORE_NORM = DRAW.standard_normal((2, ROWS, WIDTH))
CONTEXT = DRAW.standard_normal((ROWS, WIDTH))


def drawn(out: int, width: int) -> Linear:
    return Linear(*(DRAW.standard_normal(shape).astype(np.float32) for shape in ((out, width), out)))


LAYERS = {
    **{f"encoder.layers.{n}.mlp.up": drawn(WIDE, WIDTH) for n in range(3)},
    **{f"encoder.layers.{n}.attention.output": drawn(WIDTH, WIDTH) for n in range(3)},
}
OWN, SQUARE = LAYERS[f"{LAYER}mlp.up"], LAYERS[f"{LAYER}attention.output"]


def product(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return np.asarray(x @ weight.T + (0 if bias is None else bias), np.float32)


STAGES = {
    f"{LAYER}attention.query": DRAW.standard_normal((ROWS, HEADS, WIDTH // HEADS)).astype(np.float32),
    f"{LAYER}attention.context": CONTEXT.astype(np.float32),
    f"{LAYER}attention.output": product(CONTEXT, *SQUARE),
    f"{LAYER}attention.residual": BEFORE_NORM.astype(np.float32),
    f"{LAYER}mlp_norm": X.astype(np.float32),
    f"{LAYER}mlp.up": product(X, *OWN),
}


def known(stages: Sequence[str]) -> Mapping[str, Linear]:
    return {each: LAYERS[each] for each in stages if each in LAYERS}


def hint_of(part: str, candidate: np.ndarray, stages: Mapping[str, np.ndarray] = STAGES) -> Hint | None:
    stage = f"{LAYER}{part}"
    before = tuple(stages)[: tuple(stages).index(stage)][::-1]
    return explain(Scene(stage, stages[stage], candidate, 1e-6, stages, stages, before, layers=known), 1.0)


def in_8_bits(blocks: np.ndarray) -> np.ndarray:
    scales = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    return np.asarray(np.round(blocks / scales) * scales)


NEXT = LAYERS["encoder.layers.2.mlp.up"]
FAULTS: list[tuple[str, np.ndarray, str]] = [
    ("attention.output", product(CONTEXT, SQUARE.weight.T, SQUARE.bias), "its weight is transposed"),
    ("mlp.up", product(X, OWN.weight.reshape(WIDTH, WIDE).T, OWN.bias), "its weight is read as 32×64, not 64×32"),
    ("mlp.up", product(X, OWN.weight, None), "its bias is left out"),
    ("mlp.up", product(X, OWN.weight, 2 * OWN.bias), "its bias is added twice"),  # type: ignore[operator]
    ("mlp.up", product(X, *NEXT), "its weight and bias are those of encoder.layers.2.mlp.up"),
    ("mlp.up", product(X, NEXT.weight, OWN.bias), "its weight is that of encoder.layers.2.mlp.up"),
    ("mlp.up", product(X, OWN.weight, NEXT.bias), "its bias is that of encoder.layers.2.mlp.up"),
    ("mlp.up", product(BEFORE_NORM, *OWN), f"it takes {LAYER}attention.residual as its input, where the reference's"),
    ("mlp.up", product(X, rounded_to_bfloat16(OWN.weight), OWN.bias), "its weight is rounded to bfloat16"),
    ("mlp.up", product(X, rounded_to_float16(OWN.weight), OWN.bias), "its weight is rounded to float16"),
    ("mlp.up", product(X, in_8_bits(OWN.weight), OWN.bias), "its weight is rounded to 8 bits with one scale for each"),
    ("mlp.up", product(X, in_8_bits(OWN.weight.reshape(1, -1)).reshape(WIDE, WIDTH), OWN.bias),
     "its weight is rounded to 8 bits with one scale;"),
    ("attention.output",
     product(CONTEXT.reshape(ROWS, HEADS, -1)[:, [0, 2, 3, 1]].reshape(ROWS, WIDTH), *SQUARE),
     "the columns of its weight for heads 1, 2, 3 take heads 2, 3, 1"),
]  # fmt: skip


@pytest.mark.parametrize("part, candidate, sentence", FAULTS, ids=[each[2][:40] for each in FAULTS])
def test_fault_of_a_linear_layer_is_named(part: str, candidate: np.ndarray, sentence: str) -> None:
    hint = hint_of(part, candidate)
    assert hint is not None and hint.kind == "linear layer" and hint.sentence.startswith(sentence)


def test_bias_is_named_only_if_the_weights_are_known() -> None:
    stage = f"{LAYER}mlp.up"
    scene = Scene(stage, STAGES[stage], product(X, OWN.weight, None), 1e-6, STAGES, STAGES, (f"{LAYER}mlp_norm",))
    hint = explain(scene, 1.0)
    assert hint is not None and hint.kind == "constant of each channel"


@pytest.mark.parametrize("kind", sorted(OTHER))
def test_unknown_change_of_a_linear_layer_gets_no_hint(kind: str) -> None:
    for part in ("mlp.up", "attention.output"):
        flat = STAGES[f"{LAYER}{part}"].astype(np.float64)
        changed = OTHER[kind](flat, np.random.default_rng(1)).astype(np.float32)
        assert hint_of(part, changed) is None


def test_no_hint_if_the_reference_is_not_the_product_of_the_known_weight() -> None:
    other = {**STAGES, f"{LAYER}mlp.up": product(X, *NEXT)}
    assert hint_of("mlp.up", product(X, OWN.weight, None), other) is None


def test_right_product_of_a_wrong_input_gets_no_hint() -> None:
    wrong = X * (1 + 1e-3 * DRAW.standard_normal(X.shape))
    stage = f"{LAYER}mlp.up"
    seen = {**STAGES, f"{LAYER}mlp_norm": wrong.astype(np.float32)}
    scene = Scene(stage, STAGES[stage], product(wrong, *OWN), 1e-6, STAGES, seen, (f"{LAYER}mlp_norm",), layers=known)
    assert explain(scene, 1.0) is None


@pytest.mark.parametrize("rows", [2, ROWS])
def test_a_weight_and_a_bias_in_different_orders_are_named(rows: int) -> None:
    stages = {name: each[:rows] for name, each in STAGES.items()}
    order = np.arange(WIDE)
    order[[3, 9, 40]] = 9, 40, 3
    weight, bias = OWN.weight, np.asarray(OWN.bias)
    for candidate, words in (
        (product(X[:rows], weight[order], bias), "rows 3, 9, 40 of its weight are the reference's 9, 40, 3, and"),
        (product(X[:rows], weight, bias[order]), "values 3, 9, 40 of its bias are the reference's 9, 40, 3, and"),
        (product(X[:rows], weight[order], bias) + product(X[:rows], weight, None) * (order == 3), None),
    ):
        hint = hint_of("mlp.up", candidate, stages)
        assert hint is None if words is None else hint is not None and hint.sentence.startswith(words)
