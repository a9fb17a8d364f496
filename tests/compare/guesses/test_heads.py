"""Explanations of a fused projection of queries, keys and values that is laid out by head."""

from __future__ import annotations

import numpy as np

from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Hint, Scene

LAYER = "llm.layers.1.attention."
DRAW = np.random.default_rng(9)
Q, K, V = (DRAW.standard_normal((14, heads, 8)).astype(np.float32) for heads in (4, 2, 2))


def hint_of(stage: str, reference: np.ndarray, candidate: np.ndarray, parts: dict[str, np.ndarray]) -> Hint | None:
    stages = {f"{LAYER}{name}": each for name, each in parts.items()}
    return explain(Scene(f"{LAYER}{stage}", reference, candidate, 1e-6, stages, stages, tuple(stages)), 1.0)


PARTS = {"query": Q, "key": K, "value": V}


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
