"""Explanations of wrong weights of CIF, and of frames that are added up to tokens in another way."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from workbench.compare import compare, judge
from workbench.compare.guesses.rounding import rounded_to_bfloat16
from workbench.trace.trace import Trace

DRAW = np.random.default_rng(5)
FRAMES = DRAW.standard_normal((60, 12)).astype(np.float32)
WEIGHTS = np.append(DRAW.random(60) * (DRAW.random(60) > 0.3) * 0.5, 0.45).astype(np.float32)


def fired(
    weights: np.ndarray,
    divide: Callable[[float, float], tuple[float, float]] | None = None,
    frames: np.ndarray = FRAMES,
    threshold: float = 1.0,
    unit: float = 1.0,
) -> np.ndarray:
    """Returns the tokens as FunASR's `cif` computes them.

    Args:
        divide: returns what a weight adds to its token and to the next one, from the weight and what is lacking.
        threshold: the sum of weights at which a token is complete.
        unit: what is then taken from the sum.
    """
    divide = divide or (lambda weight, lacking: (lacking, weight - lacking))
    total, token, tokens = 0.0, np.zeros(12), []
    for weight, frame in zip(weights.astype(np.float64), np.vstack([frames, np.zeros((1, 12))])):
        lacking = unit - total
        if total + weight < threshold:
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
        (
            np.append(np.r_[0.2, WEIGHTS[:-2]], 0.45),
            "its weights but the last come 1 frame late, as when the padding of a convolution is off;",
        ),
        (np.append(np.r_[WEIGHTS[2:-1], 0.1, 0.2], 0.45), "its weights but the last come 2 frames early, as when"),
        (np.append(np.r_[WEIGHTS[1:-1], 0.1] * 1.1, 0.45), None),
        (
            np.r_[WEIGHTS[:-2], WEIGHTS[-2] + 0.45, 0.0],
            "the weight of the tail is added to the last frame, and its own is 0;",
        ),
        (np.r_[WEIGHTS[:-2], WEIGHTS[-2] + 0.45], "the weight of the tail is added to the last frame, without a place"),
        (WEIGHTS[:-1], "the weight of the tail is left out;"),
        (WEIGHTS[1:], None),
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


def with_rest(is_carried: bool) -> np.ndarray:
    """Returns tokens whose sums begin at 0, with the rest of the last weight dropped or given to the next frame."""
    total, rest, token, tokens = 0.0, 0.0, np.zeros(12), []
    for weight, frame in zip(WEIGHTS.astype(np.float64), np.vstack([FRAMES, np.zeros((1, 12))])):
        given = weight + rest * is_carried
        rest = max(total + given - 1, 0.0)
        token = token + (given - rest) * frame
        total += given
        if total >= 1:
            tokens.append(token)
            total, token = 0.0, np.zeros(12)
    return np.array(tokens)


@pytest.mark.parametrize(
    ("is_carried", "words"),
    [
        (True, "the rest of a weight that completes a token is given to the next frame;"),
        (False, "the sum of weights begins at 0 after each token, without the rest of the last weight;"),
    ],
)
def test_a_lost_rest_of_a_weight_is_named_whatever_the_number_of_tokens(is_carried: bool, words: str) -> None:
    tokens, count = with_rest(is_carried), len(fired(WEIGHTS))
    found = sentence(WEIGHTS, tokens)
    assert found is not None and found.startswith(words)
    assert len(tokens) < count or is_carried
    padded = np.vstack([tokens, np.zeros((count - len(tokens), 12))])
    found = sentence(WEIGHTS, padded)
    assert found is not None and found.startswith(words[:-1])
    assert (f"only {len(tokens)} of {count} tokens are complete, and zeros follow;" in found) != is_carried


AT_EACH = "a token is complete at each {} of the sum of weights, where the reference's is at 1"


@pytest.mark.parametrize("threshold", [0.9, 0.95, 1.05, 1.3])
def test_another_threshold_is_named(threshold: float) -> None:
    for tokens, words in (
        (fired(WEIGHTS, threshold=threshold, unit=threshold), f"{AT_EACH.format(threshold)};"),
        (fired(WEIGHTS / threshold), f"{AT_EACH.format(threshold)}, and its weights are divided by {threshold};"),
    ):
        found = sentence(WEIGHTS, tokens)
        assert found is not None and found.startswith(words)
    found = sentence(WEIGHTS, fired(WEIGHTS, threshold=threshold))
    assert found is not None
    described = re.match(
        r"a token is complete where the sum of weights reaches a threshold between ([\d.]+) and", found
    )
    assert described and "and 1 is then taken from the sum;" in found
    below, above = (float(each) for each in re.findall(r"[\d.]+", found)[:2])
    assert below < threshold <= above and not below < 1 <= above


def test_another_threshold_is_named_in_bfloat16() -> None:
    right = {"encoder.output": FRAMES, "predictor.alphas": WEIGHTS, "predictor.embeddings": fired(WEIGHTS)}
    late = rounded_to_bfloat16(fired(WEIGHTS, threshold=0.9, unit=0.9)).astype(np.float32)
    wrong = Trace({**right, "predictor.embeddings": late}, {"dtype": "bfloat16"})
    explanation = judge(compare(Trace(right, {}), wrong)).explanation
    assert explanation is not None and explanation.sentence.startswith(AT_EACH.format(0.9))


def test_tokens_without_the_weight_of_the_tail_are_named() -> None:
    weights = np.append(WEIGHTS[:-1], 1 - fired_total(WEIGHTS[:-1]) + 0.01).astype(np.float32)
    right = {"encoder.output": FRAMES, "predictor.alphas": weights, "predictor.embeddings": fired(weights)}
    wrong = {**right, "predictor.embeddings": fired(weights[:-1])}
    explanation = judge(compare(Trace(right, {}), Trace(wrong, {}))).explanation
    count = len(fired(weights))
    assert explanation is not None and len(fired(weights[:-1])) == count - 1
    assert explanation.sentence.startswith("the weight of the tail is left out")
    assert f"so that {count - 1} of {count} tokens are complete;" in explanation.sentence
    fewer = {**right, "predictor.embeddings": fired(weights)[:-2]}
    assert judge(compare(Trace(right, {}), Trace(fewer, {}))).explanation is None


def fired_total(weights: np.ndarray) -> float:
    """Returns the part of the sum of weights that completes no token."""
    return float(weights.astype(np.float64).sum() % 1)


def test_right_tokens_get_no_hint_and_others_none_that_is_not_theirs() -> None:
    rounding = 1 + 1e-6 * DRAW.standard_normal(fired(WEIGHTS).shape)
    assert sentence(WEIGHTS, fired(WEIGHTS) * rounding) is None
    late = fired(WEIGHTS, threshold=0.9, unit=0.9)
    for wrong in (np.abs(fired(WEIGHTS)) ** 1.1, late + 1e-3 * DRAW.standard_normal(late.shape)):
        assert sentence(WEIGHTS, wrong) is None


def test_tokens_of_wrong_weights_get_no_hint_of_their_own() -> None:
    within = WEIGHTS * np.float32(1 + 5e-5)  # the stage before is within tolerance
    assert sentence(within, fired(within)) is None


@pytest.mark.parametrize(("place", "words"), [(0, "before"), (60, "after")])
def test_weights_of_neighbouring_frames_are_named(place: int, words: str) -> None:
    moved = np.insert(FRAMES, place, 0, axis=0)
    found = sentence(WEIGHTS, fired(WEIGHTS, frames=moved[:-1] if place == 0 else moved[1:]))
    assert found is not None and found.startswith(f"each weight belongs to the frame {words} its own;")
