"""Explanations of attention faults: the layout of fused projections, shared key heads, wrong scale and wrong mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.layers import softmax
from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Hint, Scene

LAYER = "llm.layers.1.attention."
DRAW = np.random.default_rng(9)
Q, K, V = (DRAW.standard_normal((14, heads, 8)).astype(np.float32) for heads in (4, 2, 2))


def attention(scale: float = 8**-0.5, sees: int = 0, in_turn: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Returns attention weights, and the weights times the values."""
    k, v = (np.tile(x, (1, 2, 1)) if in_turn else np.repeat(x, 2, axis=1) for x in (K, V))
    scores = np.einsum("qhd,khd->hqk", Q, k, dtype=np.float64) * scale
    weights = softmax(np.where(np.tril(np.ones((14, 14), bool), sees), scores, -np.inf))
    context = np.einsum("hqk,khd->qhd", weights, v).reshape(14, -1)
    return weights.astype(np.float32), context.astype(np.float32)


def hint_of(stage: str, reference: np.ndarray, candidate: np.ndarray, parts: dict[str, np.ndarray]) -> Hint | None:
    stages = {f"{LAYER}{name}": each for name, each in parts.items()}
    return explain(Scene(f"{LAYER}{stage}", reference, candidate, 1e-6, stages, stages, tuple(stages)), 1.0)


PARTS = {"query": Q, "query_rope": Q, "key": K, "key_rope": K, "value": V}


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        ({"in_turn": True}, "key heads are shared in turn (query head h reads key head h % 2), where the reference's"),
        ({"scale": 1.0}, "the scores are not divided by the root of the head's width"),
        ({"scale": 1 / 8}, "the scores are divided by the width of the head, not by its root"),
        ({"sees": 14}, "a row sees later rows too"),
    ],
)
def test_attention_fault_is_named_from_the_context(wrong: Any, sentence: str) -> None:
    hint = hint_of("context", attention()[1], attention(**wrong)[1], PARTS)
    assert hint is not None and hint.kind == "attention" and hint.sentence.startswith(sentence)


def test_key_heads_shared_in_turn_are_named_from_the_weights() -> None:
    hint = hint_of("weights", attention()[0], attention(in_turn=True)[0], PARTS)
    assert hint is not None and hint.sentence.startswith("key heads are shared in turn")


def test_weights_of_other_heads_than_the_queries_get_no_hint() -> None:
    weights = attention()[0]
    assert hint_of("weights", weights[:3], np.square(weights[:3]) + 0.1, PARTS) is None
    assert hint_of("context", attention()[1][:, :24], np.square(attention()[1][:, :24]) + 0.1, PARTS) is None


def test_attention_fault_is_not_guessed_from_queries_before_rope() -> None:
    turned = {**PARTS, "query_rope": Q[::-1], "key_rope": K[::-1]}
    assert hint_of("context", attention()[1], attention(sees=14)[1], turned) is None


def test_a_fused_projection_that_is_laid_out_by_head_is_named() -> None:
    parts = [DRAW.standard_normal((14, 4, 8)).astype(np.float32) for _ in range(3)]
    by_head = np.stack(parts, axis=2).reshape(14, 12, 8)
    named_parts = dict(zip(("query", "key", "value"), parts))
    for number, name, first in (
        (0, "query", "query 0, key 0, value 0, query 1"),
        (2, "value", "value 2, query 3, key 3"),
    ):
        hint = hint_of(name, named_parts[name], by_head[:, 4 * number : 4 * number + 4], named_parts)
        assert hint is not None and hint.kind == "fused projection"
        assert hint.sentence.startswith(f"its heads are the reference's {first}")


def test_head_missing_from_the_reference_gets_no_fused_projection_hint() -> None:
    other = np.concatenate([Q[:, :2], K[:, :1], DRAW.standard_normal((14, 1, 8))], axis=1).astype(np.float32)
    assert hint_of("query", Q, other, PARTS) is None
