"""Guesses at dropout that a port left on: some values are zero, and all others larger by one factor.

Which values are zero cannot be predicted. But with a share p of zeros, the others are 1 / (1 - p) times as large.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, relative_l2, table

_MIN_ZEROS = 16
_MIN_RATE, _MAX_RATE = 0.005, 0.6  # of a dropout
_DEVIATIONS = 5.0  # by which the share of zeros may differ from the rate
_PLAIN_RATES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5)


def dropped(scene: Scene) -> Iterator[Guess]:
    """Yields dropout of the stage, or of the part that is added to the nearest earlier stage."""
    r, c = table(scene.reference), table(scene.candidate)
    if found := _rate(r, c, scene.allowed, float(np.linalg.norm(r))):
        yield _guess(scene, f"it has {_words(*found)}")
        return
    for name, reference_input, candidate_input in scene.inputs(3):
        x, y = table(reference_input), table(candidate_input)
        if found := _rate(r - x, c - y, scene.allowed, float(np.linalg.norm(r))):
            yield _guess(scene, f"what is added to {name} has {_words(*found)}")
            return


def _guess(scene: Scene, words: str) -> Guess:
    def expected(rows: Rows) -> np.ndarray:
        return table(scene.reference[rows])

    return Guess("dropout", words, expected, is_verified=True)


def _words(rate: float, zeros: int, values: int) -> str:
    share = f"{zeros} of {values} values are 0 and the others {1 / (1 - rate):.4g} times the reference's"
    return f"dropout of {rate:.3g}: {share}, as when a model is not set to inference (`model.eval()`)"


def _rate(r: np.ndarray, c: np.ndarray, allowed: float, size: float) -> tuple[float, int, int] | None:
    """Returns the rate of the dropout by which c follows from r, the values that it made 0, and those that it may have.

    None if it does not follow. Values that are nearly 0 on the reference's side show nothing.
    """
    rounding = 4 * allowed * size / math.sqrt(max(r.size, 1))
    clear = np.abs(r) > 100 * rounding
    count = int(clear.sum())
    is_zero = clear & (np.abs(c) <= 4 * rounding)
    zeros = int(is_zero.sum())
    kept = clear & ~is_zero
    if zeros < _MIN_ZEROS or not kept.any():
        return None
    factor = float((r[kept] * c[kept]).sum() / np.square(r[kept]).sum())
    rate = 1 - 1 / factor if factor > 1 else 0.0
    rate = next((each for each in _PLAIN_RATES if abs(each - rate) < 1e-3), rate)
    if not _MIN_RATE <= rate <= _MAX_RATE:
        return None
    if abs(zeros - rate * count) > _DEVIATIONS * math.sqrt(count * rate * (1 - rate)):
        return None
    expected = np.where(is_zero, 0.0, r / (1 - rate))
    near = ~clear  # too small to tell 0 from the rest
    expected[near] = c[near]
    if relative_l2(expected, c) * float(np.linalg.norm(expected)) > 8 * allowed * size:
        return None
    touched = is_zero.any(axis=0).mean()  # channels; zeros of a few channels are another fault
    is_spread = touched > 0.5 * (1 - (1 - rate) ** (count / is_zero.shape[1]))
    return (rate, zeros, count) if is_spread else None
