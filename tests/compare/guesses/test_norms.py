"""Explanations of a wrong norm: the weight of another norm is named, and an epsilon only if the values show it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.layers import rms, stages
from workbench.compare import compare, judge
from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Hint, Scene
from workbench.trace.trace import Trace

REFERENCE = stages()
NORM = "llm.layers.1.input_norm"


def hint_of(candidate: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> Hint | None:
    return judge(compare(Trace(reference, {}), Trace(candidate, {}))).explanation


def weight_of(stage: str, entering: str) -> np.ndarray:
    return np.asarray((REFERENCE[stage] / rms(REFERENCE[entering].astype(np.float64)))[0])


@pytest.mark.parametrize(
    "step, source, entering, norm",
    [
        ("input_norm", "llm.layers.1.mlp_norm", "llm.layers.1.attention.residual", NORM),
        ("input_norm", "llm.layers.2.input_norm", "llm.layers.1", NORM),
        ("llm__norm", "llm.layers.2.mlp_norm", "llm.layers.2.attention.residual", "llm.norm"),
    ],
)
def test_norm_with_the_weight_of_another_norm_names_that_norm(step: str, source: str, entering: str, norm: str) -> None:
    other: Any = {step: lambda x, w: rms(x) * weight_of(source, entering)}
    hint = hint_of(stages(noise=1e-7, **other), REFERENCE)
    assert hint is not None and (hint.stage, hint.kind) == (norm, "norm")
    assert f" with another weight, that of {source};" in hint.sentence


@pytest.mark.parametrize(
    "norm, sentence",
    [
        (
            lambda x: x / np.sqrt(np.square(x).sum(axis=-1, keepdims=True) / 31 + 1e-6),
            "the norm of llm.layers.0 divides its sum of squares by 31, where the reference divides by 32",
        ),
        (
            lambda x: x / (np.sqrt(np.square(x).mean(axis=-1, keepdims=True)) + 1e-6),
            "the norm of llm.layers.0 adds its epsilon to the root, where the reference adds it under the root",
        ),
        (
            lambda x: x / x.std(axis=-1, keepdims=True),
            "the norm of llm.layers.0 divides by the deviation without subtracting the mean",
        ),
        (
            lambda x: x / np.sqrt(np.square(x).mean(axis=0) + 1e-6),
            "the norm of llm.layers.0 is taken over the rows of each channel, where the reference's is over",
        ),
        (
            lambda x: x / np.sqrt(np.square(x).mean() + 1e-6),
            "the norm of llm.layers.0 is taken over all values at once, where the reference's is over",
        ),
    ],
)
def test_other_formula_of_a_norm_is_named(norm: Any, sentence: str) -> None:
    small = 1e-2 if "epsilon" in sentence else 1.0
    hint = hint_of(stages(size=small, at=0, input_norm=lambda x, w: norm(x) * w), stages(size=small))
    sentence = sentence.replace("llm.layers.0", "llm.embeddings")
    assert hint is not None and hint.kind == "norm" and hint.sentence.startswith(sentence)


def test_epsilon_outside_the_root_is_named_where_large_values_hide_the_epsilon() -> None:
    x = 10 * np.random.default_rng(3).standard_normal((20, 16))
    outside = x / (np.sqrt(np.square(x).mean(axis=1, keepdims=True)) + 1e-5)
    before = {"llm.layers.0": x}
    hint = explain(Scene(NORM, rms(x, 1e-5), outside, 1e-7, before, before, tuple(before)), 1.0)
    assert hint is not None and "adds its epsilon to the root" in hint.sentence


def test_unknown_norm_weight_is_reported_as_another_weight() -> None:
    weight = 1 + np.random.default_rng(1).random(32)
    hint = hint_of(stages(noise=1e-7, input_norm=lambda x, w: rms(x) * weight), REFERENCE)
    assert hint is not None and hint.sentence.startswith("it is the norm of llm.layers.0 with another weight; a diff")


@pytest.mark.parametrize("aside", [(), ("query",), ("query", "key")])
def test_layer_norm_with_weight_and_bias_of_another_names_that_norm(aside: tuple[str, ...]) -> None:
    """Also if stages of the same shape, which are not its input, stand before that norm."""
    draw = np.random.default_rng(2)
    x = {name: 3 + draw.standard_normal((40, 16)) for name in ("encoder.layers.0", "encoder.layers.1")}
    affine = draw.random((2, 2, 16)) + 0.5

    def norm(entering: str, number: int) -> np.ndarray:
        centred = x[entering] - x[entering].mean(axis=1, keepdims=True)
        return np.asarray(rms(centred, 1e-5) * affine[number, 0] + affine[number, 1])

    names = ("encoder.layers.1.input_norm", "encoder.layers.2.mlp_norm")
    reference = {
        "encoder.layers.0": x["encoder.layers.0"],
        names[0]: norm("encoder.layers.0", 0),
        "encoder.layers.1": x["encoder.layers.1"],
        **{f"encoder.layers.2.attention.{part}": draw.standard_normal((40, 16)) for part in aside},
        names[1]: norm("encoder.layers.1", 1),
    }
    reference = {name: each.astype(np.float32) for name, each in reference.items()}
    candidate = {**reference, names[0]: norm("encoder.layers.0", 1).astype(np.float32)}
    hint = hint_of(candidate, reference)
    assert hint is not None and f"with another weight and bias, those of {names[1]};" in hint.sentence


@pytest.mark.parametrize("size, sentence", [(1.0, "has 1e-06"), (3.0, "has a smaller one")])
def test_exact_reference_epsilon_is_not_stated_when_large_values_hide_it(size: float, sentence: str) -> None:
    wrong = stages(size=size, at=0, noise=1e-8, input_norm=lambda x, w: rms(x, 1e-2) * w)
    hint = hint_of(wrong, stages(size=size))
    assert hint is not None
    assert hint.sentence.startswith(f"the norm of llm.embeddings has the epsilon 0.01, where the reference {sentence};")
