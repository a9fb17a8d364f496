"""Explanations of wrong weights of CIF, and of frames that are added up to tokens in another way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from workbench.compare import compare, judge
from workbench.trace.trace import Trace

DRAW = np.random.default_rng(5)
FRAMES = DRAW.standard_normal((60, 12)).astype(np.float32)
WEIGHTS = np.append(DRAW.random(60) * (DRAW.random(60) > 0.3) * 0.5, 0.45).astype(np.float32)


def fired(
    weights: np.ndarray,
    divide: Callable[[float, float], tuple[float, float]] | None = None,
    frames: np.ndarray = FRAMES,
) -> np.ndarray:
    """Returns the tokens as FunASR's `cif` computes them; `divide` returns what a weight adds to its token and to the
    next one, from the weight and what is lacking.
    """
    divide = divide or (lambda weight, lacking: (lacking, weight - lacking))
    total, token, tokens = 0.0, np.zeros(12), []
    for weight, frame in zip(weights.astype(np.float64), np.vstack([frames, np.zeros((1, 12))]), strict=True):
        lacking = 1 - total
        if weight < lacking:
            total, token = total + weight, token + weight * frame
            continue
        own, following = divide(weight, lacking)
        tokens.append(token + own * frame)
        total, token = weight - lacking, following * frame
    return np.array(tokens, np.float32)


def sentence(weights: np.ndarray, tokens: np.ndarray) -> str | None:
    sides = (
        {"encoder.output": FRAMES, "predictor.alphas": x, "predictor.embeddings": y}
        for x, y in ((WEIGHTS, fired(WEIGHTS)), (weights.astype(np.float32), tokens))
    )
    explanation = judge(compare(*(Trace(each, {}) for each in sides))).explanation
    return explanation and explanation.sentence


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.append(WEIGHTS[:-1], 0.3), "its last weight, the tail, is 0.3, where the reference's is 0.45;"),
        (
            np.append(1.05 * WEIGHTS[:-1], 0.45),
            "its weights but the last are 1.05 times the reference's, as with anoth",
        ),
        (
            np.append(np.maximum(WEIGHTS[:-1] - 0.04, 0), 0.45),
            "its weights but the last are the reference's less 0.04 and at least 0, as with another noise_threshold;",
        ),
        (
            np.append(np.maximum(1.2 * WEIGHTS[:-1] - 0.02, 0), 0.45),
            "its weights but the last are 1.2 times the reference's less 0.02 and at least 0, as with another smooth_f",
        ),
        (np.append(WEIGHTS[:-1] ** 1.1, 0.45), None),
    ],
)
def test_changed_weights_are_named(weights: np.ndarray, words: str | None) -> None:
    found = sentence(weights, fired(WEIGHTS))
    assert found is None if words is None else found is not None and found.startswith(words)


@pytest.mark.parametrize(
    ("divide", "words"),
    [
        (lambda weight, lacking: (lacking, 0.0), "adds its part of the weight to it and no weight to the next;"),
        (lambda weight, lacking: (weight, 0.0), "adds its whole weight to it and no weight to the next;"),
        (lambda weight, lacking: (0.0, weight), "adds no weight to it and its whole weight to the next;"),
        (lambda weight, lacking: (0.9 * lacking, weight - lacking), None),
    ],
)
def test_a_wrongly_divided_weight_is_named(
    divide: Callable[[float, float], tuple[float, float]], words: str | None
) -> None:
    found = sentence(WEIGHTS, fired(WEIGHTS, divide))
    assert found is None if words is None else found is not None and words in found


def test_tokens_of_wrong_weights_get_no_hint_of_their_own() -> None:
    within = WEIGHTS * np.float32(1 + 5e-5)  # the stage before is within tolerance
    assert sentence(within, fired(within)) is None


@pytest.mark.parametrize(("place", "words"), [(0, "before"), (60, "after")])
def test_weights_of_neighbouring_frames_are_named(place: int, words: str) -> None:
    moved = np.insert(FRAMES, place, 0, axis=0)
    found = sentence(WEIGHTS, fired(WEIGHTS, frames=moved[:-1] if place == 0 else moved[1:]))
    assert found is not None and found.startswith(f"each weight belongs to the frame {words} its own;")
