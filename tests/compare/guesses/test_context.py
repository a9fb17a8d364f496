"""Explanations of an attention that shows only its result: shared key heads, scale, mask, softmax, RoPE, padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tests.compare.test_explain import OTHER
from tests.support.layers import softmax, turned
from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Hint, Linear, Scene
from workbench.compare.guesses.rounding import rounded_to_bfloat16

LAYER = "llm.layers.1.attention."
ROWS, HEADS, WIDTH = 24, 4, 8
DRAW = np.random.default_rng(9)
Q, K, V = (DRAW.standard_normal((ROWS, heads, WIDTH)) for heads in (HEADS, 2, 2))
TURNED = {"query": Q, "key": K, "query_rope": turned(Q), "key_rope": turned(K), "value": V}
UNTURNED = {"query": Q, "key": K, "value": V}
CAUSAL = np.tril(np.ones((ROWS, ROWS), bool))
Function = Callable[[np.ndarray], np.ndarray]


def weighted(
    parts: Mapping[str, np.ndarray],
    q: np.ndarray | None = None,
    k: np.ndarray | None = None,
    scale: float = WIDTH**-0.5,
    mask: np.ndarray = CAUSAL,
    in_turn: bool = False,
    soft: Function = softmax,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns attention weights, and the weights times the values."""
    q = parts.get("query_rope", parts["query"]) if q is None else q
    k = parts.get("key_rope", parts["key"]) if k is None else k
    k, v = (np.tile(x, (1, 2, 1)) if in_turn else np.repeat(x, 2, axis=1) for x in (k, parts["value"]))
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    weights = soft(np.where(mask, scores, -np.inf))
    context = np.einsum("hqk,khd->qhd", weights, v).reshape(ROWS, -1)
    return weights.astype(np.float32), context.astype(np.float32)


def hint_of(
    stage: str,
    reference: np.ndarray,
    candidate: np.ndarray,
    parts: Mapping[str, np.ndarray] = TURNED,
    seen: Mapping[str, np.ndarray] = UNTURNED,
) -> Hint | None:
    """Returns the hint at a stage; the candidate shows the stages `seen` of those that the reference shows."""
    stages, of_candidate = (
        {f"{LAYER}{name}": each.astype(np.float32) for name, each in x.items()} for x in (parts, seen)
    )
    return explain(Scene(f"{LAYER}{stage}", reference, candidate, 1e-5, stages, of_candidate, tuple(of_candidate)), 1.0)


def sunk(scores: np.ndarray) -> np.ndarray:
    return softmax(np.concatenate([scores, np.zeros((HEADS, ROWS, 1))], axis=2))[..., :ROWS]


def in_bfloat16(scores: np.ndarray) -> np.ndarray:
    return rounded_to_bfloat16(softmax(rounded_to_bfloat16(scores)))


def moved(first: int) -> np.ndarray:
    return np.arange(ROWS) - (np.arange(ROWS) >= first)


def at(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    rows = turned(np.repeat(x[None], ROWS + 3, axis=0).reshape(ROWS + 3, -1, WIDTH))
    return rows.reshape(ROWS + 3, ROWS, -1, WIDTH)[positions, np.arange(ROWS)]


PLACES = np.arange(ROWS)
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"in_turn": True}, "key heads are shared in turn (query head h reads key head h % 2), where the reference's"),
    ({"scale": 1.0}, "the scores are not divided by the root of the head's width"),
    ({"scale": 1 / WIDTH}, "the scores are divided by the width of the head, not by its root"),
    ({"scale": 32**-0.5}, "the scores are divided by √32, not by √8"),
    ({"scale": 12**-0.5}, "the scores are 0.8165 times the reference's;"),
    ({"scale": 1.02 * WIDTH**-0.5}, "the scores are 1.02 times the reference's;"),
    ({"mask": CAUSAL | True}, "a row sees later rows too"),
    ({"mask": np.tril(np.ones((ROWS, ROWS), bool), 1)}, "a row sees one later row, where the reference's sees none"),
    ({"mask": CAUSAL & ~np.tril(CAUSAL, -7)}, "a row sees only itself and the 6 rows before it"),
    ({"mask": CAUSAL & ((PLACES > 1) | (PLACES[:, None] < 2))}, ""),
    ({"soft": sunk}, "softmax adds 1 to the sum that it divides by"),
    ({"soft": in_bfloat16}, "scores and softmax are in bfloat16"),
    ({"q": Q, "k": K}, "RoPE is left out;"),
    ({"k": K}, "RoPE is left out of the keys"),
    ({"q": Q}, "RoPE is left out of the queries"),
    ({"q": turned(Q, neighbours=True), "k": turned(K, neighbours=True)}, "RoPE turns neighbouring channels together"),
    ({"q": turned(Q, base=1e4), "k": turned(K, base=1e4)}, "RoPE has the base 10000, where the reference has 1000000"),
    ({"k": turned(K, first=1)}, "RoPE: the positions of its keys are off by +1 against those of its queries"),
    ({"q": turned(Q, first=1)}, "RoPE: the positions of its keys are off by -1 against those of its queries"),
    ({"q": at(Q, ROWS - PLACES), "k": at(K, ROWS - PLACES)}, "RoPE turns the other way;"),
    ({"q": at(Q, moved(9)), "k": at(K, moved(9))}, "RoPE's positions are off by -1 from row 9 on"),
]  # fmt: skip


@pytest.mark.parametrize("wrong, sentence", FAULTS, ids=[each[1][:40] or "unknown" for each in FAULTS])
def test_attention_fault_is_named_from_the_context(wrong: Any, sentence: str) -> None:
    hint = hint_of("context", weighted(TURNED)[1], weighted(TURNED, **wrong)[1])
    if not sentence:
        assert hint is None
    else:
        assert hint is not None and hint.kind == "attention" and hint.sentence.startswith(sentence)
        assert hint.remaining < 1e-5


@pytest.mark.parametrize("stage", ["", "output"])
@pytest.mark.parametrize("wrong, sentence", [FAULTS[n] for n in (1, 2, 5, 6, 7, 10, 12)])
def test_attention_fault_is_named_behind_its_output_projection(stage: str, wrong: Any, sentence: str) -> None:
    layer = Linear(DRAW.standard_normal((12, HEADS * WIDTH)), DRAW.standard_normal(12))
    right, faulty = (weighted(TURNED, **choices)[1] for choices in ({}, wrong))
    reference = {f"{LAYER}{name}": each.astype(np.float32) for name, each in (TURNED | {"context": right}).items()}
    name = f"{LAYER}{stage}".removesuffix(".")

    def hint(layers: Any, seen: Mapping[str, np.ndarray]) -> Hint | None:
        shown = [layer(each).astype(np.float32) for each in (right, faulty)]
        return explain(Scene(name, *shown, 1e-5, reference, seen, tuple(seen), layers=layers), 1.0)

    found = hint(lambda stages: {f"{LAYER}output": layer}, {})
    assert found is not None and found.kind == "attention" and found.sentence.startswith(sentence)
    assert hint(None, {}) is None and hint(lambda stages: {}, {}) is None
    # A context that the candidate shows is right: then the fault is behind it.
    assert hint(lambda stages: {f"{LAYER}output": layer}, {f"{LAYER}context": right}) is None


@pytest.mark.parametrize(
    "mask, sentence",
    [
        (PLACES[None] < ROWS - 1, "its rows do not see the last of 24 keys"),
        (PLACES[None] >= 3, "its rows do not see the first 3 of 24 keys"),
        (PLACES[None] // 5 <= PLACES[:, None] // 5, "a row sees no rows behind the end of its chunk of 5"),
        (CAUSAL, "a row sees no later rows"),
    ],
)
def test_wrong_mask_of_an_encoder_is_named_from_the_context(mask: np.ndarray, sentence: str) -> None:
    wide = np.ones((ROWS, ROWS), bool)
    reference, candidate = (weighted(UNTURNED, mask=each & wide)[1] for each in (wide, mask))
    hint = hint_of("context", reference, candidate, UNTURNED)
    assert hint is not None and hint.sentence.startswith(sentence)


def test_padding_that_is_not_masked_is_named_if_its_keys_have_one_value() -> None:
    key, value = DRAW.standard_normal((2, 2, WIDTH))
    padded = [np.concatenate([np.repeat(x[None], 3, axis=0), side]) for x, side in ((key, K), (value, V))]
    k, v = (np.repeat(x, 2, axis=1) for x in padded)
    scores = np.einsum("qhd,khd->hqk", Q, k) * WIDTH**-0.5
    mask = np.concatenate([np.ones((ROWS, 3), bool), CAUSAL], axis=1)
    context = np.einsum("hqk,khd->qhd", softmax(np.where(mask, scores, -np.inf)), v).reshape(ROWS, -1)
    hint = hint_of("context", weighted(UNTURNED)[1], context.astype(np.float32), UNTURNED)
    assert hint is not None and hint.sentence.startswith("each head also sees keys of one other value, with ")


def test_softmax_over_the_queries_is_named_from_the_context() -> None:
    wide = np.ones((ROWS, ROWS), bool)
    wrong = weighted(UNTURNED, mask=wide, soft=lambda scores: softmax(scores.swapaxes(1, 2)).swapaxes(1, 2))
    hint = hint_of("context", weighted(UNTURNED, mask=wide)[1], wrong[1], UNTURNED)
    assert hint is not None and hint.sentence.startswith("softmax is over the queries of each key")


def test_attention_is_computed_from_the_references_stages_if_the_candidate_shows_none() -> None:
    hint = hint_of("context", weighted(TURNED)[1], weighted(TURNED, scale=1.0)[1], seen={})
    assert hint is not None and hint.sentence.startswith("the scores are not divided by the root")


def test_attention_of_a_decoding_step_is_computed_from_the_cache() -> None:
    stages = {"query": Q[-1:], "key": K[-1:], "value": V[-1:]}
    named = {f"steps.3.{LAYER}{name}": each for name, each in stages.items()}
    caches = {f"steps.3.llm.layers.1.cache.{name}": each for name, each in (("key", K), ("value", V))}
    right, wrong = (weighted(UNTURNED, scale=scale)[1][-1:] for scale in (WIDTH**-0.5, 1.0))
    scene = Scene(f"steps.3.{LAYER}context", right, wrong, 1e-5, {**named, **caches}, named, tuple(named))
    hint = explain(scene, 1.0)
    assert hint is not None and hint.sentence.startswith("the scores are not divided by the root")


@pytest.mark.parametrize("kind", sorted(OTHER))
def test_unknown_change_of_the_context_gets_no_hint(kind: str) -> None:
    for seed in range(3):
        reference = weighted(TURNED)[1]
        changed = OTHER[kind](reference.astype(np.float64), np.random.default_rng(seed)).astype(np.float32)
        assert hint_of("context", reference, changed) is None


def test_right_attention_of_wrong_queries_gets_no_hint() -> None:
    queries = Q * (1 + 1e-3 * DRAW.standard_normal(Q.shape))
    wrong = weighted({**TURNED, "query_rope": turned(queries)})[1]
    assert hint_of("context", weighted(TURNED)[1], wrong, seen={**UNTURNED, "query": queries}) is None


def test_attention_fault_is_not_guessed_from_queries_before_rope() -> None:
    parts = {**TURNED, "query_rope": Q[::-1], "key_rope": K[::-1]}
    reference, wrong = weighted(UNTURNED)[1], weighted(UNTURNED, mask=CAUSAL | True)[1]
    assert hint_of("context", reference, wrong, parts) is None


def test_key_heads_shared_in_turn_are_named_from_the_weights() -> None:
    hint = hint_of("weights", weighted(TURNED)[0], weighted(TURNED, in_turn=True)[0])
    assert hint is not None and hint.sentence.startswith("key heads are shared in turn")


def test_another_rope_is_named_from_the_weights() -> None:
    hint = hint_of("weights", weighted(TURNED)[0], weighted(TURNED, k=turned(K, first=1))[0])
    assert hint is not None and hint.sentence.startswith("RoPE: the positions of its keys are off by +1")


def test_weights_of_other_heads_than_the_queries_get_no_hint() -> None:
    weights, context = weighted(TURNED)
    assert hint_of("weights", weights[:3], np.square(weights[:3]) + 0.1) is None
    assert hint_of("context", context[:, :24], np.square(context[:, :24]) + 0.1) is None
