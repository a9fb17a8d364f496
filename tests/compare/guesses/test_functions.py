"""The functions that guesses try have their published values, and long lists of places are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.compare.explain import explain
from workbench.compare.guesses.functions import ACTIVATIONS
from workbench.compare.guesses.guess import Scene, in_order, listed, relative_l2


@pytest.mark.parametrize(
    "name, at_minus_one, at_one",
    [
        ("SiLU", -0.268941, 0.731059),
        ("GELU", -0.158655, 0.841345),
        ("GELU by tanh", -0.158808, 0.841192),
        ("GELU by a sigmoid", -0.154204, 0.845796),
        ("ReLU", 0, 1),
        ("ReLU6", 0, 1),
        ("squared ReLU", 0, 1),
        ("the identity", -1, 1),
        ("sigmoid", 0.268941, 0.731059),
        ("tanh", -0.761594, 0.761594),
        ("mish", -0.303401, 0.865098),
        ("softplus", 0.313262, 1.313262),
        ("ELU", -0.632121, 1),
        ("hard swish", -1 / 3, 2 / 3),
        ("leaky ReLU", -0.01, 1),
    ],
)
def test_activations_equal_published_values(name: str, at_minus_one: float, at_one: float) -> None:
    values = ACTIVATIONS[name](np.array([-1.0, 1.0]))
    assert values == pytest.approx([at_minus_one, at_one], abs=1e-6)


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda a, b: b * sigmoid(a), "the first half is the gate, where the reference's is the second"),
        (lambda a, b: a, "the gate is left out: it is the first half"),
        (lambda a, b: a * np.tanh(b), "the activation of the gate is tanh, where the reference has sigmoid"),
        (
            lambda a, b: (x := np.hstack([a, b]))[:, ::2] * sigmoid(x[:, 1::2]),
            "even and odd channels are value and gate, where the reference has two halves",
        ),
        (lambda a, b: a * sigmoid(b + 0.01), None),
    ],
)
def test_other_gates_of_a_convolution_part_are_named(change: Any, sentence: str | None) -> None:
    halves = np.random.default_rng(3).standard_normal((2, 20, 8))
    up = {"encoder.layers.0.conv.up": np.hstack(halves)}
    stage, reference = "encoder.layers.0.conv.gate", halves[0] * sigmoid(halves[1])
    hint = explain(Scene(stage, reference, change(*halves), 1e-6, up, up, tuple(up)), 1.0)
    assert hint is None if sentence is None else hint is not None and hint.sentence.startswith(sentence)


def test_activation_of_a_convolution_part_is_named() -> None:
    x = 2 * np.random.default_rng(4).standard_normal((20, 8))
    entering = {"encoder.layers.0.conv.depthwise_norm": x}
    stage = "encoder.layers.0.conv.activation"
    scene = Scene(stage, x * sigmoid(x), np.maximum(x, 0), 1e-6, entering, entering, tuple(entering))
    hint = explain(scene, 1.0)
    assert hint is not None and hint.sentence.startswith(
        "the activation is ReLU or ReLU6, where the reference has SiLU"
    )


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def test_lists_of_places_are_shortened() -> None:
    assert listed(np.array([3, 9, 10])) == "3, 9, 10"
    assert listed(np.arange(4, 13)) == "4 to 12"
    assert in_order(np.array([5, 1, 9, 2, 7, 0, 3, 8])) == "5, 1, 9, 2, 7, 0, 3, 8"
    assert in_order(np.array([5, 1, 9, 2, 7, 0, 3, 8, 4, 6])) == "5, 1, 9, 2, 7, 0, 3, 8 and 2 more"


def test_one_smaller_value_is_no_soft_cap() -> None:
    small_values = 1e-4 * np.random.default_rng(0).normal(size=99)
    for reference in (np.array([[-2.0]]), np.r_[small_values, -2.0][:, None]):
        candidate = np.where(reference == -2.0, -6.0, reference)
        for first, second in ((reference, candidate), (candidate, reference)):
            assert explain(Scene("logits", first, second, 1e-6), relative_l2(first, second)) is None


def test_soft_cap_of_the_logits_is_named_with_its_size() -> None:
    logits = 20 * np.random.default_rng(8).standard_normal((6, 40))
    for cap in (30.0, 50.0, 33.333):
        capped = cap * np.tanh(logits / cap)
        hint = explain(Scene("logits", logits, capped, 1e-6), relative_l2(logits, capped))
        assert hint is not None and hint.sentence.startswith(f"its values are capped softly at {cap:g}: cap * tanh")
        hint = explain(Scene("logits", capped, logits, 1e-6), relative_l2(capped, logits))
        assert hint is not None and f"are capped softly at {cap:g}, cap * tanh(x / cap), and these" in hint.sentence
    clipped = np.clip(logits, -30, 30)
    assert explain(Scene("logits", logits, clipped, 1e-6), relative_l2(logits, clipped)) is None


def test_relu6_is_distinguished_from_relu_by_values_above_6() -> None:
    up = 4 * np.random.default_rng(2).standard_normal((8, 40))
    stages = {"encoder.layers.0.mlp.up": up}
    reference, candidate = np.maximum(up, 0), np.clip(up, 0, 6)
    for right, wrong, name, other in ((reference, candidate, "ReLU6", "ReLU"), (candidate, reference, "ReLU", "ReLU6")):
        scene = Scene("encoder.layers.0.mlp.activation", right, wrong, 1e-6, stages, stages, tuple(stages))
        hint = explain(scene, 1.0)
        assert hint is not None and hint.sentence.startswith(
            f"the activation is {name}, where the reference has {other};"
        )
