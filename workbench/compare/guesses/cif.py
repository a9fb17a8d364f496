"""Guesses at CIF (continuous integrate-and-fire), which adds up frames to tokens.

Each frame has a weight. A token is complete where the sum of weights reaches one more; the weight of that frame is
divided between this token and the next one. Behind the last frame stands a constant weight, the tail. Source: Dong and
Xu 2020; the tail, `smooth_factor` and `noise_threshold` are FunASR's.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.compare.guesses.guess import Guess, Scene, is_close, table
from workbench.compare.guesses.shares import Shares, other_shares, shares_of
from workbench.core.phrases import counted, enumerated

WEIGHTS, TOKENS, FRAMES = "predictor.alphas", "predictor.embeddings", "encoder.output"
CIF_STAGES = (WEIGHTS, TOKENS)
_SAME = 1e-4  # a factor that is nearer to 1, or a constant that is nearer to 0, counts as equal
_MIN_FITTED = 8  # weights above zero that a fit of two numbers needs
_MAX_VALUES = 1 << 24  # of the frames
_SHIFTS = (1, -1, 2, -2)


def cif(scene: Scene) -> Iterator[Guess]:
    """Yields other weights of frames, and other ways of adding frames up to tokens."""
    if scene.reference.shape[1:] != scene.candidate.shape[1:]:
        return
    if scene.stage == WEIGHTS and scene.reference.ndim == 1 and len(scene.reference) > _MIN_FITTED:
        if scene.reference.shape == scene.candidate.shape:
            yield from _weights(scene)
        elif len(scene.reference) == len(scene.candidate) + 1:
            yield from _without_tail(scene)
    elif scene.stage == TOKENS and {WEIGHTS, FRAMES} <= set(scene.before) and scene.reference.ndim == 2:
        yield from _tokens(scene)


def _weights(scene: Scene) -> Iterator[Guess]:
    r, c = (np.asarray(side, np.float64) for side in (scene.reference, scene.candidate))

    def guess(words: str, expected: np.ndarray) -> Guess:
        return Guess("CIF", words, lambda rows: table(expected[rows]))

    tail = f"its last weight, the tail, is {c[-1]:.4g}, where the reference's is {r[-1]:.4g}"
    yield guess(tail, np.append(r[:-1], c[-1]))
    yield guess("the weight of the tail is added to the last frame, and its own is 0", np.append(_with_last(r), 0.0))
    for shift in _SHIFTS:
        moved = np.roll(r[:-1], shift)
        edge = slice(shift) if shift > 0 else slice(shift, None)
        if 2 * np.square(moved[edge]).sum() > np.square(moved).sum():
            continue  # little would be compared
        moved[edge] = c[:-1][edge]  # what comes in at the end depends on the padding
        late = f"{counted(abs(shift), 'frame')} {'late' if shift > 0 else 'early'}"
        words = f"its weights but the last come {late}, as when the padding of a convolution is off"
        yield guess(words, np.append(moved, r[-1]))
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


def _without_tail(scene: Scene) -> Iterator[Guess]:
    """Yields weights that lack the place of the tail."""
    r = np.asarray(scene.reference, np.float64)
    for words, expected in (
        ("the weight of the tail is left out", r[:-1]),
        ("the weight of the tail is added to the last frame, without a place of its own", _with_last(r)),
    ):
        yield Guess("CIF", words, lambda rows, expected=expected: table(expected[rows]))  # type: ignore[misc]


def _with_last(weights: np.ndarray) -> np.ndarray:
    """Returns weights with the last one added to the one before."""
    return np.append(weights[:-2], weights[-2] + weights[-1])


def _tokens(scene: Scene) -> Iterator[Guess]:
    (reference_frames, candidate_frames), (reference_weights, candidate_weights) = (
        scene.entered(each) for each in (FRAMES, WEIGHTS)
    )
    reference_count, count = len(scene.reference), len(scene.candidate)
    weights, frames = np.asarray(candidate_weights, np.float64), table(candidate_frames)
    if (
        weights.shape != reference_weights.shape
        or frames.shape != reference_frames.shape
        or weights.ndim != 1
        or len(weights) != len(frames) + 1
        or frames.size > _MAX_VALUES
    ):
        return
    right = shares_of(np.asarray(reference_weights, np.float64), reference_count)
    if right is None or not is_close(
        right.tokens(_with_tail(table(reference_frames)), range(reference_count)), table(scene.reference), scene.allowed
    ):
        return
    frames_and_tail, tokens = _with_tail(frames), table(scene.candidate)
    if count < reference_count:
        yield from _tokens_without_tail(scene, weights, frames_and_tail)
    right = shares_of(weights, count)
    if right is not None and is_close(right.tokens(frames_and_tail, range(count)), tokens, 2 * scene.allowed):
        return  # the error came in with the weights or the frames

    def guess(words: str, shares: Shares, source_frames: np.ndarray) -> Guess:
        return Guess("CIF", words, lambda rows: shares.tokens(source_frames, rows))

    for words, shares in other_shares(weights, frames_and_tail, tokens, scene.allowed):
        yield guess(words, shares, frames_and_tail)
    if right is None:
        return
    edge = np.zeros((1, frames.shape[1]))
    for words, source in (
        ("before", np.concatenate([edge, frames[:-1]])),
        ("after", np.concatenate([frames[1:], edge])),
    ):
        yield guess(f"each weight belongs to the frame {words} its own", right, _with_tail(source))


def _tokens_without_tail(scene: Scene, weights: np.ndarray, frames: np.ndarray) -> Iterator[Guess]:
    """Yields the tokens that are complete without the tail's weight, or with that added to the last frame."""
    count = len(scene.candidate)
    clause = f"so that {count} of {counted(len(scene.reference), 'token')} {'is' if count == 1 else 'are'} complete"
    for option, changed in (("left out", weights[:-1]), ("added to the last frame", _with_last(weights))):
        shares = shares_of(changed, count)
        if shares is None or shares_of(changed, count + 1) is not None:
            continue
        words = f"the weight of the tail is {{}}, {clause}"
        expected = shares.tokens(frames, range(count))
        yield Guess("CIF", words, lambda rows, expected=expected: expected[rows], option=option)  # type: ignore[misc]


def _with_tail(frames: np.ndarray) -> np.ndarray:
    """Returns frames [T, D] and a frame of zeros, which has the weight of the tail."""
    return np.concatenate([frames, np.zeros((1, frames.shape[1]))])
