"""Explanations of wrong attention weights, also where rounding has made some weights zero."""

from __future__ import annotations

import numpy as np

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
