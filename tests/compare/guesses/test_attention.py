"""Explanations of wrong attention weights, also where rounding has made some weights zero."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.layers import softmax
from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Scene, relative_l2

STAGE = "encoder.layers.0.attention.weights"
WIDTH = 36


def test_unscaled_scores_are_distinguished_from_a_mask_when_weights_underflow() -> None:
    scores = 40 * np.random.default_rng(1).standard_normal((2, 12, 12))
    reference, candidate = (softmax(each).astype(np.float32) for each in (scores / WIDTH**0.5, scores))
    assert (reference > 0).all() and not (candidate > 0).all()
    hint = explain(Scene(STAGE, reference, candidate, allowed=1e-5), relative_l2(reference, candidate))
    assert hint is not None and hint.kind == "scale of scores"
    assert "the scores are 6 times the reference's, as without division by √36; a difference of" in hint.sentence


def test_weights_that_underflow_are_not_counted_as_hidden() -> None:
    scores = 3 * np.random.default_rng(3).standard_normal((2, 12, 12))
    scores[0, 3, 4] = -103.0  # between the least number of float32 and zero
    masked = np.where(np.arange(12) < 10, scores, -np.inf)
    reference = softmax(scores)
    reference[0, 3, 4] = 0.0
    hint = explain(Scene(STAGE, reference, softmax(masked), allowed=1e-5), 1.0)
    assert hint is not None and hint.kind == "mask"
    assert hint.sentence.startswith(
        "other keys are hidden: it hides 24 pairs of query and key that the reference sees;"
    )


@pytest.mark.parametrize(
    "times, clause",
    [
        (6, ", as without division by √36"),
        (1 / 6, ", as with a second division by √36"),
        (0.5, ", as with division by √144 (all heads), not by √36 (one head)"),
        (8, ""),  # √64, which is no width of this attention
        (1 / 8, ""),
        (0.9, ""),
    ],
)
@pytest.mark.parametrize("part", ["query", "context"])
def test_scale_of_scores_is_explained_by_the_widths_of_this_attention(times: float, clause: str, part: str) -> None:
    scores = 0.3 * np.random.default_rng(2).standard_normal((4, 12, 12))
    shape = (12, 4, WIDTH) if part == "query" else (12, 4 * WIDTH)
    others = {STAGE.replace("weights", part): np.ones(shape, np.float32)}
    scene = Scene(STAGE, softmax(scores), softmax(times * scores), 1e-6, others, others)
    hint = explain(scene, 1.0)
    assert hint is not None and hint.sentence.startswith(f"the scores are {times:.5g} times the reference's{clause};")


def test_softmax_with_another_sum_is_named() -> None:
    scores = np.random.default_rng(4).standard_normal((2, 12, 12))
    exponentials = np.exp(scores)
    for candidate, sentence in (
        (exponentials / (exponentials.sum(-1, keepdims=True) + 1), "the weights of a query sum to 0.9"),
        (exponentials / exponentials.sum(1, keepdims=True), "softmax is over the queries of each key, where the"),
    ):
        hint = explain(Scene(STAGE, softmax(scores), candidate, allowed=1e-6), 1.0)
        assert hint is not None and hint.kind == "softmax" and hint.sentence.startswith(sentence)
    noisy = softmax(scores) * np.random.default_rng(5).uniform(0.5, 1, scores.shape)
    assert explain(Scene(STAGE, softmax(scores), noisy, allowed=1e-6), 1.0) is None
