"""Explanations of the first stage beyond tolerance: a known fault is named only if it accounts for the difference."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.layers import HEAD, HEADS, WIDTH, attention_weights, rms, stages, turned
from workbench.compare import Tolerances, compare, find_preset, judge, noise_or_bug, to_dict
from workbench.compare.explain import explain, with_hints
from workbench.compare.guesses.functions import ACTIVATIONS
from workbench.compare.guesses.guess import Hint, Scene
from workbench.trace.trace import Trace

REFERENCE = stages()
ROUNDED = stages(noise=2e-7)
LAYER = "llm.layers.1"
BEFORE = "llm.layers.0"


def hint_of(candidate: dict[str, np.ndarray], reference: dict[str, np.ndarray] | None = None) -> Hint | None:
    """Returns the verdict's explanation of a candidate."""
    candidate = {name: np.asarray(each, np.float32) for name, each in candidate.items()}
    return judge(compare(Trace(reference or REFERENCE, {}), Trace(candidate, {}))).explanation


def with_stage(stage: str, change: Callable[[np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
    return {**ROUNDED, stage: change(ROUNDED[stage].astype(np.float64))}


def of_heads(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: change(x.reshape(len(x), HEADS, HEAD)).reshape(x.shape)


def brain(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


RNG = np.random.default_rng(7)
ORDER, CONSTANTS = RNG.permutation(WIDTH), RNG.standard_normal(WIDTH)
SEVENTH = np.arange(WIDTH) == 7
CHANGES: list[tuple[str, Callable[[np.ndarray], np.ndarray], str, str]] = [
    (LAYER, lambda x: ROUNDED[BEFORE], "left out", f"equals the reference's {BEFORE}, as if nothing were computed"),
    ("llm.layers.2", lambda x: ROUNDED["llm.norm"], "already normed", "equals the reference's llm.norm: it is already"),
    ("llm.norm", lambda x: ROUNDED["llm.layers.2"], "before the norm", "the norm is left out"),
    (LAYER, lambda x: x[::-1], "rows reversed", "rows are in reverse order"),
    (LAYER, lambda x: np.roll(x, 1, axis=0), "rows shifted", "rows come one position late"),
    (LAYER, lambda x: np.roll(x, -2, axis=0), "rows shifted", "rows come 2 positions early"),
    (LAYER, lambda x: x[:, ::-1], "channels reversed", "channels are in reverse order"),
    (LAYER, lambda x: np.roll(x, WIDTH // 2, axis=1), "halves swapped", "the halves have changed places"),
    (LAYER, of_heads(lambda x: x[:, [2, 0, 3, 1]]), "heads permuted", "blocks of 8 channels are permuted"),
    (LAYER, of_heads(lambda x: x.reshape(-1, HEADS, 2, 4).swapaxes(2, 3)), "halves interleaved", "of each 8 channels"),
    (LAYER, of_heads(lambda x: x.reshape(-1, HEADS, 4, 2).swapaxes(2, 3)), "halves interleaved", "even and odd"),
    (LAYER, lambda x: x[:, ORDER], "channels permuted", "channels"),
    (LAYER, lambda x: x[np.r_[3, 1, 2, 0, 4:20]], "rows permuted", "rows 0, 3 hold what the reference has in row"),
    (LAYER, lambda x: x.T.reshape(x.shape), "layout", "transposed, in the shape of the untransposed"),
    (LAYER, lambda x: x.reshape(-1, HEADS, HEAD).swapaxes(0, 1).reshape(x.shape), "layout", "4 heads of 8"),
    (LAYER, lambda x: np.where(np.arange(WIDTH) < 4, -x, x), "signs", "4 of 32 channels have the other sign"),
    (LAYER, lambda x: x * WIDTH**0.5, "factor", "it is 5.65685 times the reference (√32"),
    (LAYER, lambda x: x * 0.4342945, "factor", "logarithms of base 10, not e"),
    (LAYER, lambda x: x - 20.79442, "constant", "samples of full scale 1, not 32768"),
    (LAYER, lambda x: 3 * x + 1, "factor and constant", "3 times the reference plus 1"),
    (LAYER, lambda x: x + CONSTANTS, "constant of each channel", "as when a bias"),
    (LAYER, lambda x: x * CONSTANTS, "factor of each channel", "as when a norm's weight"),
    (LAYER, lambda x: np.where(SEVENTH, 3 * x + 2, x), "factor and constant of each channel", "only channel 7 differs"),
    (LAYER, lambda x: CONSTANTS * x + ORDER, "factor and constant of each channel", "each channel is a multiple of"),
    (LAYER, lambda x: x * (1 + (np.arange(20) == 3))[:, None], "factor of each row", "only row 3 differs: it is 2"),
    (LAYER, lambda x: x * (np.arange(WIDTH) != 7), "factor of each channel", "channel 7 is zeros, and the other"),
    (LAYER, lambda x: 0 * x, "zeros", "all zeros"),
    (LAYER, lambda x: x.astype(np.float16), "coarser type", "it is the reference rounded to float16"),
    (LAYER, lambda x: brain(x * (1 + 0.003 * CONSTANTS)), "coarser type", "it is in bfloat16"),
    (LAYER, lambda x: np.maximum(x, 0), "function", "it is the ReLU of the reference"),
    ("logits", lambda x: x - np.log(np.exp(x).sum(1, keepdims=True)), "function", "log-softmax"),
    (LAYER, lambda x: x / np.linalg.norm(x, axis=1, keepdims=True), "already normed", "is the reference after a norm"),
    (LAYER, lambda x: x + ROUNDED[f"{LAYER}.attention.residual"], "addend", "once more than the reference"),
]  # fmt: skip


@pytest.mark.parametrize(
    "stage, change, kind, sentence", CHANGES, ids=[f"{n} {each[2]}" for n, each in enumerate(CHANGES)]
)
def test_known_change_of_a_stage_is_explained(
    stage: str, change: Callable[[np.ndarray], np.ndarray], kind: str, sentence: str
) -> None:
    hint = hint_of(with_stage(stage, change))
    assert hint is not None and (hint.kind, hint.stage) == (kind, stage)
    assert sentence in hint.sentence and hint.remaining < 1e-5 < hint.error


STEPS: list[tuple[str, Any, str, str, str]] = [
    ("input_norm", lambda x, w: rms(x, 1e-3) * w, "input_norm", "epsilon", "epsilon 0.001, where"),
    ("mlp_norm", lambda x, w: rms(x), "mlp_norm", "norm", "without its weight"),
    ("mlp_norm", lambda x, w: rms(x) * (1 + w), "mlp_norm", "norm", "with one plus its weight"),
    ("mlp_norm", lambda x, w: rms(x - x.mean(1, keepdims=True)) * w, "mlp_norm", "norm", "of the kind LayerNorm"),
    ("attention__query_norm", lambda x, w: x, "attention.query_norm", "before the norm", "equals the reference's"),
    ("attention__query_norm", lambda x, w: rms(rms(x) * w) * w, "attention.query_norm", "norm twice", "applied twice"),
    ("attention__query_rope", lambda x: turned(x, neighbours=True), "attention.query_rope", "RoPE layout", "neighbour"),
    ("attention__query_rope", lambda x: turned(x, base=1e4), "attention.query_rope", "RoPE base", "has the base 10000"),
    ("attention__query_rope", lambda x: turned(x, first=1), "attention.query_rope", "RoPE position", "off by +1"),
    ("attention__query_rope", lambda x: turned(x[:, ::-1]), "attention.query_rope", "rows", ""),
    ("attention__query", lambda x, w: (x @ w.T).reshape(-1, HEADS, HEAD), "attention.query", "", ""),
    ("mlp__activation", lambda g, u: ACTIVATIONS["GELU"](g) * u, "mlp.activation", "activation", "is GELU, where"),
    ("mlp__activation", lambda g, u: ACTIVATIONS["GELU by tanh"](g) * u, "mlp.activation", "activation", "by tanh"),
    ("mlp__activation", lambda g, u: g * ACTIVATIONS["SiLU"](u), "mlp.activation", "gate", "applied to up"),
    ("layer", lambda x, down: down, "", "no residual", "equals the reference's llm.layers.1.mlp.down"),
]  # fmt: skip


@pytest.mark.parametrize(
    "step, does, part, kind, sentence", STEPS, ids=[f"{n} {each[3]}" for n, each in enumerate(STEPS)]
)
def test_a_wrong_step_inside_a_layer_is_explained(step: str, does: Any, part: str, kind: str, sentence: str) -> None:
    changed = stages(noise=2e-7, **{step: does})
    verdict = judge(compare(Trace(REFERENCE, {}), Trace(changed, {})))
    assert verdict.faulty_stage == (f"{LAYER}.{part}" if part else LAYER)
    explanation = verdict.explanation
    if not kind:
        assert explanation is None
    elif kind == "rows":  # heads in another order: the only change that a permutation explains
        assert explanation is not None and explanation.kind == "heads permuted"
    else:
        assert explanation is not None and explanation.kind in (kind, "left out") and sentence in explanation.sentence


@pytest.mark.parametrize(
    "weights, kind, sentence",
    [
        (
            lambda q, k: attention_weights(q, k, scale=1.0),
            "scale of scores",
            "the scores are 2.8284 times the reference's, as w",
        ),
        (
            lambda q, k: attention_weights(q, k, sees=1),
            "mask",
            "sees 19 pairs of query and key that the reference hides",
        ),
        (
            lambda q, k: attention_weights(q, k)[[1, 0, 2, 3]],
            "rows permuted",
            "heads 0, 1 hold what the reference has in heads 1",
        ),
    ],
)
def test_wrong_attention_weights_are_explained(weights: Any, kind: str, sentence: str) -> None:
    hint = hint_of(stages(noise=1e-7, attention__weights=weights))
    assert hint is not None and hint.kind == kind and sentence in hint.sentence


def test_stages_one_too_late_are_distinguished_from_a_missing_layer() -> None:
    names = ["llm.embeddings", *(f"llm.layers.{n}" for n in range(3))]
    reference = {name: REFERENCE[name] for name in (*names, "llm.norm")}
    late = {**reference, **{name: reference[earlier] for earlier, name in pairwise(names)}}
    hint = hint_of(late, reference)
    assert hint is not None and hint.kind == "stages shifted" and "one stage too late" in hint.sentence
    early = {**reference, **dict(zip(names[1:], (reference[each] for each in (*names[2:], "llm.norm"))))}
    hint = hint_of(early, reference)
    assert hint is not None and "equals the reference's llm.layers.1: it and the stage after it" in hint.sentence


def test_missing_input_scale_before_positions_is_explained() -> None:
    draw = np.random.default_rng(3)
    features, positions = draw.standard_normal((30, 16)), draw.standard_normal((34, 16))
    queries = draw.standard_normal((4, 16))
    rows = np.vstack([queries, features])
    reference = {
        "frontend.features": features,
        "encoder.input": 8 * rows + positions,
        "encoder.layers.0": draw.random((34, 64)),
    }
    reference = {name: each.astype(np.float32) for name, each in reference.items()}
    hint = hint_of({**reference, "encoder.input": rows + positions}, reference)
    assert hint is not None and hint.kind == "scale of an addend"
    assert hint.sentence.startswith("from row 4 on frontend.features is in it without the factor 8 = √64")
    hint = hint_of({**reference, "encoder.input": 4 * rows + positions}, reference)
    assert hint is not None and hint.kind == "scale of an addend"
    assert hint.sentence.startswith("from row 4 on frontend.features is in it with the factor √16, not √64")


def test_wrong_uses_of_cmvn_are_explained() -> None:
    draw = np.random.default_rng(4)
    lfr, shift, scale = draw.standard_normal((40, 12)) + 9, draw.standard_normal(12) - 9, 0.1 + draw.random(12)
    reference = {
        "frontend.lfr": lfr.astype(np.float32),
        "frontend.features": ((lfr + shift) * scale).astype(np.float32),
    }
    for wrong, kind, sentence in (
        (lfr, "no CMVN", "equals the reference's frontend.lfr: CMVN is left out"),
        (((lfr + shift) * scale + shift) * scale, "CMVN", "CMVN is applied twice"),
        (lfr * scale, "CMVN", "shift is left out"),
        (lfr + shift, "CMVN", "scale is left out"),
        ((lfr - shift) * scale, "CMVN", "wrong sign"),
        ((lfr + scale) * shift, "CMVN", "shift and scale have changed places"),
    ):
        hint = hint_of({**reference, "frontend.features": wrong}, reference)
        assert hint is not None and hint.kind == kind and sentence in hint.sentence


OTHER: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "noise": lambda x, draw: x + 0.01 * draw.standard_normal(x.shape),
    "relative noise": lambda x, draw: x * (1 + 0.001 * draw.standard_normal(x.shape)),
    "clipped": lambda x, draw: np.clip(x, -1, 1.2),
    "squared": lambda x, draw: x + 0.1 * x * x,
    "dropped": lambda x, draw: x * (draw.random(x.shape) > 0.1),
    "low rank": lambda x, draw: x + draw.standard_normal((len(x), 1)) * draw.standard_normal((1, x.shape[1])),
    "mixed rows": lambda x, draw: 0.9 * x + 0.1 * np.roll(x, 1, axis=0),
    "8 bits": lambda x, draw: np.round(x * 40 / np.abs(x).max()) * np.abs(x).max() / 40,
    "another matrix": lambda x, draw: x @ draw.standard_normal((x.shape[1], x.shape[1])),
    "unrelated": lambda x, draw: draw.standard_normal(x.shape),
    "nearly a factor": lambda x, draw: 1.5 * x * (1 + 1e-4 * draw.standard_normal(x.shape)),
    "nearly reversed": lambda x, draw: x[::-1] + 1e-4 * draw.standard_normal(x.shape),
    "nearly shifted": lambda x, draw: np.roll(x, 1, axis=0) * (1 + 1e-4 * draw.standard_normal(x.shape)),
    "half of the rows": lambda x, draw: np.where(np.arange(len(x))[:, None] % 2, x[::-1] + draw.random(x.shape), x),
}


FLAT = (
    "frontend.fbank", "frontend.lfr", "frontend.features", "encoder.input", "encoder.layers.0.input_norm",
    "encoder.layers.0.fsmn", "encoder.layers.0.conv.depthwise", "encoder.layers.0", "llm.embeddings", "llm.layers.0",
    "llm.layers.1.input_norm", "llm.layers.1.attention.output", "llm.layers.1.mlp_norm", "llm.layers.1.mlp.gate",
    "llm.layers.1.mlp.up", "llm.layers.1.mlp.activation", "llm.layers.1.mlp.down", "llm.layers.1", "llm.norm", "logits",
)  # fmt: skip
DIVIDED = {
    f"llm.layers.1.attention.{part}": heads
    for part, heads in {"query": 4, "key": 2, "value": 2, "query_rope": 4, "key_rope": 2, "context": 4}.items()
}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from((*FLAT, *DIVIDED)),
    st.sampled_from(sorted(OTHER)),
    st.integers(0, 2**32 - 1),
    st.integers(2, 40),
    st.integers(2, 12),
)
def test_unknown_faults_get_no_explanation(stage: str, kind: str, seed: int, rows: int, half: int) -> None:
    draw = np.random.default_rng(seed)
    shapes = {name: (rows, DIVIDED[name], 8) if name in DIVIDED else (rows, 2 * half) for name in (*FLAT, *DIVIDED)}
    reference = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    candidate = {name: each * (1 + 1e-7 * draw.standard_normal(each.shape)) for name, each in reference.items()}
    x = reference[stage].astype(np.float64)
    candidate[stage] = OTHER[kind](x.reshape(rows, -1), draw).reshape(x.shape)
    assert hint_of(candidate, reference) is None


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(6, 40), st.integers(4, 24), st.integers(0, 8))
def test_explanation_is_found_despite_rounding(seed: int, rows: int, columns: int, number: int) -> None:
    draw = np.random.default_rng(seed)
    reference = {
        name: draw.standard_normal((rows, columns)).astype(np.float32) for name in ("llm.layers.0", "llm.norm")
    }
    order = draw.permutation(columns)
    change: Any = [
        (lambda x: x[::-1], "rows reversed"), (lambda x: 3 * x, "factor"), (lambda x: x + 2, "constant"),
        (lambda x: np.roll(x, 1, axis=0), "rows shifted"), (lambda x: reference["llm.norm"], "already normed"),
        (lambda x: -x, "factor"), (lambda x: np.exp(x), "function"), (lambda x: x[:, ::-1], "channels reversed"),
        (lambda x: x[:, order] if (order != np.arange(columns)).any() else x[:, ::-1], ""),
    ][number]  # fmt: skip
    hint = hint_of({**reference, "llm.layers.0": change[0](reference["llm.layers.0"].astype(np.float64))}, reference)
    assert hint is not None and (not change[1] or hint.kind == change[1])


def test_correct_step_gets_no_hint_when_its_input_is_wrong() -> None:
    right = stages()
    names = ("llm.layers.2", "llm.norm")
    small = {name: right[name] for name in names}
    weight = (small["llm.norm"] / rms(small["llm.layers.2"].astype(np.float64)))[0]
    small["llm.norm"] = (rms(small["llm.layers.2"].astype(np.float64)) * weight).astype(np.float32)
    noisy = small["llm.layers.2"] + 9e-5 * np.random.default_rng(3).standard_normal(small["llm.norm"].shape)
    wrong = {"llm.layers.2": noisy, "llm.norm": rms(noisy) * weight}
    tolerance = Tolerances(find_preset("f32"), (("llm.norm", {"relative_l2": 1e-6}),))
    candidate = {name: np.asarray(each, np.float32) for name, each in wrong.items()}
    verdict = judge(compare(Trace(small, {}), Trace(candidate, {}), tolerance))
    assert verdict.faulty_stage == "llm.norm" and verdict.explanation is None


def test_more_than_a_few_roundings_of_half_precision_are_not_explained_away() -> None:
    draw = np.random.default_rng(6)
    x = rms(draw.standard_normal((47, 112))).astype(np.float32)
    scaled = brain(x * draw.uniform(0.5, 2, (47, 1)) * draw.uniform(0.5, 2, (1, 112)))  # nearly what a norm undoes
    names = ("llm.layers.0", "llm.layers.1")
    reference, candidate = dict(zip(names, (x, x))), dict(zip(names, (brain(x), scaled)))
    verdict = judge(compare(Trace(reference, {}), Trace(candidate, {"dtype": "bfloat16"})))
    assert verdict.faulty_stage == "llm.layers.1" and verdict.explanation is None


def test_few_rows_times_a_factor_are_not_called_before_the_norm() -> None:
    draw = np.random.default_rng(7)
    x = (1 + 0.1 * draw.standard_normal(112)) * rms(draw.standard_normal((47, 112)))
    changed = brain(x * (1 + (np.arange(47) >= 44))[:, None])
    traces = (
        Trace({"llm.layers.0": each}, {"dtype": dtype}) for each, dtype in ((x, "float32"), (changed, "bfloat16"))
    )
    explanation = judge(compare(*traces)).explanation
    assert explanation is not None and "only rows 44, 45, 46 differ" in explanation.sentence


def test_half_precision_rounding_is_not_explained_as_a_fault() -> None:
    draw = np.random.default_rng(5)
    x = draw.standard_normal((50, 64)).astype(np.float32)
    meta = {"dtype": "bfloat16"}

    def explanation(change: Callable[[np.ndarray], np.ndarray]) -> Hint | None:
        candidate = brain(change(x * (1 + 0.002 * draw.standard_normal(x.shape))))
        return judge(compare(Trace({"llm.layers.0": x}, {}), Trace({"llm.layers.0": candidate}, meta))).explanation

    reversed_rows = explanation(lambda x: x[::-1])
    assert reversed_rows is not None and reversed_rows.kind == "rows reversed"
    assert explanation(lambda x: x + 0.06 * draw.standard_normal(x.shape)) is None, "its type is no explanation"


def test_float64_reference_rules_out_a_hint_within_tolerance_only() -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((40, 64))

    def trace(values: np.ndarray, dtype: str) -> Trace:
        return Trace(
            {"llm.embeddings": rounded(x, 0 if dtype == "float64" else 1e-3), "llm.layers.0": values}, {"dtype": dtype}
        )

    def rounded(values: np.ndarray, error: float) -> np.ndarray:
        return values * (1 + error * draw.standard_normal(x.shape))

    reference, exact = trace(x, "float32"), trace(x, "float64")
    peer = trace(rounded(x, 2e-4), "float16")
    for error, kind in ((2e-4, "factor"), (0.004, None)):
        candidate = trace(rounded(2 * x, error), "float16")
        comparison = compare(reference, candidate)
        assert comparison.stages[1].explanation and comparison.stages[1].explanation.kind == "factor"
        stage = with_hints(
            comparison, noise_or_bug(reference, candidate, exact, peer=peer), reference, candidate
        ).stages[1]
        assert (stage.explanation.kind if stage.explanation else stage.hint) == kind


def test_explanations_indistinguishable_in_half_precision_are_named_together() -> None:
    gelu = {name: ACTIVATIONS[name] for name in ("GELU", "GELU by tanh")}
    for name, function in gelu.items():
        wrong = stages(noise=4e-4, mlp__activation=lambda g, u, function=function: function(g) * u)
        explanation = judge(compare(Trace(REFERENCE, {}), Trace(wrong, {"dtype": "float16"}))).explanation
        other = next(each for each in gelu if each != name)
        assert explanation is not None and explanation.kind == "activation"
        assert f"{name} or {other}," in explanation.sentence or f"{other} or {name}," in explanation.sentence


def test_explanation_appears_in_the_verdict_and_in_the_json() -> None:
    comparison = compare(Trace(REFERENCE, {}), Trace(with_stage(LAYER, lambda x: x[::-1]), {}))
    verdict = judge(comparison)
    assert "Its rows are in reverse order; a difference of " in verdict.sentence
    document = json.loads(json.dumps(to_dict(comparison, verdict)))
    assert document["verdict"]["explanation"]["kind"] == "rows reversed"
    [stage] = [each for each in document["stages"] if each["explanation"]]
    assert stage["stage"] == LAYER and stage["hint"] == stage["explanation"]["sentence"]
    assert set(stage["explanation"]) == {"kind", "stage", "sentence", "remaining", "error"}


def test_a_vague_explanation_that_the_weights_do_not_explain_either_is_kept() -> None:
    sides = Trace(REFERENCE, {}), Trace(with_stage(LAYER, lambda x: x + CONSTANTS), {})
    comparison = with_hints(compare(*sides), None, *sides, layers=lambda stages: {})
    [explanation] = [each.explanation for each in comparison.stages if each.explanation]
    assert explanation.kind == "constant of each channel"


def test_first_bad_stage_is_explained_end_to_end_and_every_bad_stage_isolated() -> None:
    wrong = {**ROUNDED, LAYER: 2 * ROUNDED[LAYER], "llm.layers.2": 3 * ROUNDED["llm.layers.2"]}
    for meta, expected in (({}, 1), ({"isolated": True}, 2)):
        comparison = compare(Trace(REFERENCE, {}), Trace(wrong, meta))
        assert sum(each.explanation is not None for each in comparison.stages) == expected


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_numbers_beyond_float32_are_explained_without_a_warning() -> None:
    for size, kind in ((1e100, "factor"), (1e300, None)):
        large = size * REFERENCE[LAYER].astype(np.float64)
        hint = explain(Scene(LAYER, large, 3 * large, 1e-6), 2.0)
        assert (hint and hint.kind) == kind


def test_explanation_search_stays_below_16_mb() -> None:
    x = np.random.default_rng(7).standard_normal((200, 900)).astype(np.float32)
    scene = Scene("llm.layers.0", x, np.ascontiguousarray(x[::-1]), 1e-6)
    tracemalloc.start()
    hint = explain(scene, 1.4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert hint is not None and hint.kind == "rows reversed" and peak < 16e6
