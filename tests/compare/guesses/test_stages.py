"""Features normalised by the recording's own statistics, and layers counted from 1, are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from workbench.compare import compare, judge
from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Hint, Scene
from workbench.trace.trace import Trace

DRAW = np.random.default_rng(8)
LFR = DRAW.standard_normal((40, 12)) + 9
SHIFT, SCALE = DRAW.standard_normal(12) - 9, 0.1 + DRAW.random(12)
RIGHT = {"frontend.lfr": LFR.astype(np.float32), "frontend.features": ((LFR + SHIFT) * SCALE).astype(np.float32)}


def hint_of(reference: dict[str, np.ndarray], candidate: dict[str, np.ndarray]) -> Hint | None:
    return judge(compare(Trace(reference, {}), Trace(candidate, {}))).explanation


@pytest.mark.parametrize(
    "features, sentence",
    [
        (LFR - LFR.mean(axis=0), "it is without the mean of this recording, which the reference does not do"),
        ((LFR - LFR.mean(axis=0)) / LFR.std(axis=0), "it is normalised by mean and deviation of this recording, which"),
        ((LFR - LFR.mean(axis=0)) / LFR.std(axis=0, ddof=1), "by mean and unbiased deviation of this recording"),
        ((LFR + SHIFT) * SCALE**2, "CMVN multiplies by its scale twice"),
        ((LFR + SHIFT) * SCALE**0.5, "CMVN multiplies by the root of its scale"),
    ],
)
def test_wrong_normalisation_of_features_is_named(features: np.ndarray, sentence: str) -> None:
    hint = hint_of(RIGHT, {**RIGHT, "frontend.features": features.astype(np.float32)})
    assert hint is not None and hint.kind == "CMVN" and sentence in hint.sentence


@pytest.mark.parametrize("part", ["", ".fsmn"])
def test_layers_counted_from_one_are_named(part: str) -> None:
    layers = {f"encoder.layers.{n}{part}": DRAW.standard_normal((9, 6)).astype(np.float32) for n in range(3)}
    late = dict(zip((f"encoder.layers.{n}{part}" for n in range(1, 4)), layers.values()))
    hint = hint_of(layers, late)
    assert hint is not None and hint.kind == "stages shifted"
    assert f"equals the reference's encoder.layers.0{part}: its layers are counted from 1" in hint.sentence


def test_later_stage_that_was_computed_from_the_candidate_explains_nothing() -> None:
    layer, wrong = DRAW.standard_normal((2, 20, 16))
    reference = {"encoder.layers.3": layer, "encoder.output": wrong}  # of a model without a norm behind its last layer
    candidate = {"encoder.layers.3": wrong, "encoder.output": wrong}
    scene = Scene("encoder.layers.3", layer, wrong, 1e-6, reference, candidate, (), ("encoder.output",))
    hint = explain(scene, 1.0)
    assert hint is not None and hint.kind == "already normed"
    assert explain(replace(scene, inputs_of="candidate"), 1.0) is None


def test_residual_from_the_wrong_place_is_named() -> None:
    x, normed, attended = (DRAW.standard_normal((20, 16)).astype(np.float32) for _ in range(3))
    layer = "llm.layers.1"
    reference = {
        "llm.layers.0": x,
        f"{layer}.input_norm": normed,
        f"{layer}.attention.output": attended,
        f"{layer}.attention.residual": x + attended,
    }
    hint = hint_of(reference, {**reference, f"{layer}.attention.residual": normed + attended})
    assert hint is not None and hint.kind == "addend"
    assert hint.sentence.startswith(f"it has the reference's {layer}.input_norm added in the place of llm.layers.0")


def test_addend_is_named_behind_many_stages_of_other_widths() -> None:
    x, y = (DRAW.standard_normal((20, 16)).astype(np.float32) for _ in range(2))
    wide = {f"llm.layers.1.mlp.{n}": DRAW.standard_normal((20, 32)).astype(np.float32) for n in range(20)}
    reference = {"llm.layers.0": x, **wide, "llm.layers.1": y}
    hint = hint_of(reference, {**reference, "llm.layers.1": y + x})
    assert hint is not None and hint.sentence.startswith("it has the reference's llm.layers.0 once more than the")


def test_missing_layer_is_named_without_a_guess_at_layer_numbering() -> None:
    layers = {f"encoder.layers.{n}": DRAW.standard_normal((9, 6)).astype(np.float32) for n in range(4)}
    wrong = {"encoder.layers.0": layers["encoder.layers.0"], "encoder.layers.2": layers["encoder.layers.1"]}
    hint = hint_of(layers, wrong)
    assert hint is not None and hint.sentence.startswith(
        "it equals the reference's encoder.layers.1; nothing else differs"
    )


@pytest.mark.parametrize(
    "part, expected",
    [
        ("ffn2.residual", "the norm at the end of the layer is left out"),
        ("attention.residual", "what the layer adds to it is left out"),
        ("mlp.down", "the residual stream that it is added to is left out"),
    ],
)
def test_layer_that_equals_its_own_part_says_what_is_left_out(part: str, expected: str) -> None:
    inner, layer = (DRAW.standard_normal((20, 16)).astype(np.float32) for _ in range(2))
    reference = {f"encoder.layers.1.{part}": inner, "encoder.layers.1": layer}
    hint = hint_of(reference, {**reference, "encoder.layers.1": inner})
    assert hint is not None and f"it equals the reference's encoder.layers.1.{part}: {expected};" in hint.sentence


@pytest.mark.parametrize(
    "times, expected",
    [
        (1.0, "it has the whole of the reference's encoder.layers.1.ffn1.down, of which the reference adds half;"),
        (0.0, "it lacks the reference's encoder.layers.1.ffn1.down;"),
    ],
)
def test_half_step_of_a_conformer_is_named(times: float, expected: str) -> None:
    x, down = (DRAW.standard_normal((20, 16)).astype(np.float32) for _ in range(2))
    layer = "encoder.layers.1.ffn1"
    reference = {"encoder.input": x - 1, f"{layer}.down": down, f"{layer}.residual": x + np.float32(0.5) * down}
    hint = hint_of(reference, {**reference, f"{layer}.residual": x + np.float32(times) * down})
    assert hint is not None and hint.sentence.startswith(expected)
