"""Guesses at CIF (continuous integrate-and-fire), which adds up frames to tokens.

Each frame has a weight. A token is complete where the sum of weights reaches one more; the weight of that frame is
divided between this token and the next one. Behind the last frame stands a constant weight, the tail. Source: Dong and
Xu 2020; the tail, `smooth_factor` and `noise_threshold` are FunASR's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from workbench.compare.guesses.guess import Guess, Scene, is_close, table
from workbench.core.phrases import enumerated

WEIGHTS, TOKENS, FRAMES = "predictor.alphas", "predictor.embeddings", "encoder.output"
_SAME = 1e-4  # difference of a factor from 1, or of a constant from 0, that is none
_MIN_FITTED = 8  # weights above zero that a fit of two numbers needs
_MAX_VALUES = 1 << 24  # of tokens times frames
_SHARES = {"part": "its part of the weight", "whole": "its whole weight", "none": "no weight"}


def cif(scene: Scene) -> Iterator[Guess]:
    """Yields other weights of frames, and other ways of adding frames up to tokens."""
    if scene.stage == WEIGHTS and scene.reference.ndim == 1 and len(scene.reference) > _MIN_FITTED:
        yield from _weights(scene)
    elif scene.stage == TOKENS and {WEIGHTS, FRAMES} <= set(scene.before) and scene.reference.ndim == 2:
        yield from _tokens(scene)


def _weights(scene: Scene) -> Iterator[Guess]:
    r, c = (np.asarray(side, np.float64) for side in (scene.reference, scene.candidate))

    def guess(words: str, expected: np.ndarray) -> Guess:
        return Guess("CIF", words, lambda rows: table(expected[rows]))

    tail = f"its last weight, the tail, is {c[-1]:.4g}, where the reference's is {r[-1]:.4g}"
    yield guess(tail, np.append(r[:-1], c[-1]))
    fitted = (c > 0) & (r > 0)
    fitted[-1] = False
    if fitted.sum() < _MIN_FITTED or np.ptp(r[fitted]) == 0:
        return
    factor, constant = (float(each) for each in np.polyfit(r[fitted], c[fitted], 1))
    other_factor, other_threshold = abs(factor - 1) > _SAME, abs(constant) > _SAME
    if not other_threshold:
        factor, constant = float(r[fitted] @ c[fitted]) / float(r[fitted] @ r[fitted]), 0.0
    if not other_factor:
        factor, constant = 1.0, float((c - r)[fitted].mean())
    times = f"{factor:.4g} times the reference's" if other_factor else "the reference's"
    less = f" {'less' if constant < 0 else 'plus'} {abs(constant):.4g} and at least 0" if other_threshold else ""
    settings = ["smooth_factor"] * other_factor + ["noise_threshold"] * other_threshold
    if settings:
        words = f"its weights but the last are {times}{less}, as with another {enumerated(settings)}"
        yield guess(words, np.append(np.maximum(factor * r[:-1] + constant, 0.0), r[-1]))


def _tokens(scene: Scene) -> Iterator[Guess]:
    (reference_frames, candidate_frames), (reference_weights, candidate_weights) = (
        scene.entered(each) for each in (FRAMES, WEIGHTS)
    )
    count = len(scene.reference)
    weights, frames = np.asarray(candidate_weights, np.float64), table(candidate_frames)
    if (
        weights.shape != reference_weights.shape
        or frames.shape != reference_frames.shape
        or weights.ndim != 1
        or len(weights) != len(frames) + 1
        or count * len(weights) > _MAX_VALUES
    ):
        return
    right = _shares(np.asarray(reference_weights, np.float64), count)
    if right is None or not is_close(
        right @ _with_tail(table(reference_frames)), table(scene.reference), scene.allowed
    ):
        return
    right = _shares(weights, count)
    if right is None or is_close(right @ _with_tail(frames), table(scene.candidate), 2 * scene.allowed):
        return  # the error came in with the weights or the frames

    def guess(words: str, shares: np.ndarray, source_frames: np.ndarray) -> Guess:
        return Guess("CIF", words, lambda rows: shares[rows] @ source_frames)

    for own, following in product(_SHARES, _SHARES):
        if (own, following) == ("part", "part"):
            continue
        shares = _shares(weights, count, own, following)
        if shares is not None:
            words = f"a frame that completes a token adds {_SHARES[own]} to it and {_SHARES[following]} to the next"
            yield guess(words, shares, _with_tail(frames))
    restarted = _shares(weights, count, "part", "none", restart=True)
    if restarted is not None:
        words = "the sum of weights begins at 0 after each token, without the rest of the last weight"
        yield guess(words, restarted, _with_tail(frames))
    edge = np.zeros((1, frames.shape[1]))
    for words, source in (
        ("before", np.concatenate([edge, frames[:-1]])),
        ("after", np.concatenate([frames[1:], edge])),
    ):
        yield guess(f"each weight belongs to the frame {words} its own", right, _with_tail(source))


def _with_tail(frames: np.ndarray) -> np.ndarray:
    """Returns frames [T, D] and a frame of zeros, which has the weight of the tail."""
    return np.concatenate([frames, np.zeros((1, frames.shape[1]))])


def _shares(
    weights: np.ndarray, count: int, own: str = "part", following: str = "part", restart: bool = False
) -> np.ndarray | None:
    """Returns the weight of each frame in each token [count, frames]; None if the weights complete fewer tokens.

    Args:
        own: what a frame that completes a token adds to it: "part", "whole" or "none".
        following: what it adds to the next one.
        restart: whether the sum begins at 0 after each token.
    """
    shares, token, total = np.zeros((count + 1, len(weights))), 0, 0.0
    for frame, weight in enumerate(weights):
        if total + weight < 1:
            total += weight
            shares[token, frame] += weight
            continue
        rest = total + weight - 1
        shares[token, frame] += {"part": weight - rest, "whole": weight, "none": 0.0}[own]
        token += 1
        shares[token, frame] += {"part": rest, "whole": weight, "none": 0.0}[following]
        total = 0.0 if restart else rest
        if token == count:
            return shares[:count]
    return None
