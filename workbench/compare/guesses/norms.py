"""Guesses at a fault of a norm: another epsilon, no weight, no bias, the mean not subtracted, a norm too many.

The reference shows the norm: the normalised input of the stage, times a weight plus a bias for each channel, gives the
stage. A fit finds weight and bias. If no such norm fits, no guess is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, relative_l2, same

EPSILONS = (1e-6, 1e-5, 1e-12, 1e-8, 1e-7, 1e-3, 1e-4, 0.0, 1e-2)
_INPUTS = 3  # earlier stages that may be the norm's input
_LEAST_ROWS = 4


@dataclass(frozen=True)
class Norm:
    """What a norm computes over the last axis."""

    centred: bool  # LayerNorm subtracts the mean, RMSNorm does not
    epsilon: float
    weight: np.ndarray
    bias: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        found: np.ndarray = normalised(x, self.centred, self.epsilon) * self.weight + self.bias
        return found


def normalised(x: np.ndarray, centred: bool, epsilon: float) -> np.ndarray:
    """Returns x / sqrt(mean(x^2) + epsilon) over the last axis, x without its mean first if `centred`."""
    if centred:
        x = x - x.mean(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        found: np.ndarray = x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + epsilon)
    return found


def norms(scene: Scene) -> Iterator[Guess]:
    """Yields other norms of the stage's input."""
    if scene.reference.ndim < 2 or scene.reference.shape[-1] < 4:
        return
    for name, ours, theirs in scene.inputs(_INPUTS):
        right = _read_off(_last(ours, scene.sample), _last(scene.reference, scene.sample), scene)
        if right is not None:
            # If the right norm of the candidate's input gives the candidate, the error came in with the input.
            if not same(right(_last(theirs, scene.sample)), _last(scene.candidate, scene.sample), 2 * scene.allowed):
                yield from _wrong_norms(scene, right, name, theirs)
            return


def _last(array: np.ndarray, rows: Rows) -> np.ndarray:
    """Returns rows as [rows, channels of the last axis]: a norm of heads treats each head as a row."""
    found: np.ndarray = np.asarray(array[rows], np.float64).reshape(-1, array.shape[-1])
    return found


def _read_off(x: np.ndarray, y: np.ndarray, scene: Scene) -> Norm | None:
    """Returns the norm that makes y of x; None if none does."""
    if len(x) < _LEAST_ROWS or not np.isfinite(x).all():
        return None
    best: tuple[float, Norm] | None = None
    for centred in (False, True):
        for epsilon in EPSILONS:
            found = _fitted(normalised(x, centred, epsilon), y, centred, epsilon)
            wrong = relative_l2(y, found(x))
            if best is None or wrong < 0.7 * best[0]:
                best = wrong, found
    assert best
    return best[1] if best[0] <= scene.allowed else None


def _fitted(n: np.ndarray, y: np.ndarray, centred: bool, epsilon: float) -> Norm:
    """Returns weight and bias by least squares; an RMSNorm has no bias."""
    if not np.isfinite(n).all():
        n = np.nan_to_num(n)
    mean_n, mean_y = (n.mean(axis=0), y.mean(axis=0)) if centred else (0.0, 0.0)
    square = np.square(n - mean_n).sum(axis=0)
    product = ((n - mean_n) * (y - mean_y)).sum(axis=0)
    weight = np.divide(product, square, out=np.zeros_like(product), where=square > 0)
    return Norm(centred, epsilon, weight, mean_y - weight * mean_n + np.zeros_like(weight))


def _wrong_norms(scene: Scene, right: Norm, name: str, theirs: np.ndarray) -> Iterator[Guess]:
    one, none = np.ones_like(right.weight), np.zeros_like(right.bias)

    def guess(kind: str, words: str, norm: Norm, twice: bool = False, option: str = "") -> Guess:
        def expected(rows: Rows) -> np.ndarray:
            y = norm(_last(theirs, rows))
            return (norm(y) if twice else y).reshape(len(rows), -1)

        return Guess(kind, words, expected, option=option)

    for epsilon in EPSILONS:
        if epsilon != right.epsilon:
            words = f"the norm of {name} has the epsilon {{}}, where the reference has {right.epsilon:g}"
            other = Norm(right.centred, epsilon, right.weight, right.bias)
            yield guess("epsilon", words, other, option=f"{epsilon:g}")
    kinds = "RMSNorm", "LayerNorm"
    for words, norm in (
        ("without its weight", Norm(right.centred, right.epsilon, one, right.bias)),
        ("without its bias", Norm(right.centred, right.epsilon, right.weight, none)),
        ("without its weight and bias", Norm(right.centred, right.epsilon, one, none)),
        ("with one plus its weight", Norm(right.centred, right.epsilon, right.weight + 1, right.bias)),
        ("with its weight less one", Norm(right.centred, right.epsilon, right.weight - 1, right.bias)),
        (
            f"of the kind {kinds[not right.centred]}, where the reference has {kinds[right.centred]}",
            Norm(not right.centred, right.epsilon, right.weight, right.bias),
        ),
    ):
        yield guess("norm", f"it is the norm of {name} {words}", norm)
    yield guess("norm twice", f"the norm of {name} is applied twice", right, twice=True)


def extra_norms(scene: Scene) -> Iterator[Guess]:
    """Yields the stage after a norm that it does not have, and before one that it has."""
    if scene.reference.ndim < 2 or scene.reference.shape[-1] < 4:
        return
    r, c = _last(scene.reference, scene.sample), _last(scene.candidate, scene.sample)
    if len(r) < 2 * _LEAST_ROWS:
        return
    for norm in (_read_off(r, c, scene), _plain(r, c, scene)):
        if norm is not None and not same(r, c, scene.allowed):

            def expected(rows: Rows, norm: Norm = norm) -> np.ndarray:
                return norm(_last(scene.reference, rows)).reshape(len(rows), -1)

            yield Guess("already normed", "it is the reference after a norm: it is already normed", expected)
            return
    norm = _read_off(c, r, scene)
    if norm is not None:
        # A norm cannot be inverted, so the prediction is made in the other direction, and is equally close.
        wrong = norm

        def normed(rows: Rows) -> np.ndarray:
            r, c = _last(scene.reference, rows), _last(scene.candidate, rows)
            return (c + (r - wrong(c)) * (float(np.linalg.norm(c)) / max(float(np.linalg.norm(r)), 1e-300))).reshape(
                len(rows), -1
            )

        yield Guess("before the norm", "the reference is a norm of it: it is before the norm", normed)


def _plain(r: np.ndarray, c: np.ndarray, scene: Scene) -> Norm | None:
    """Returns the division of each row by its length, if that is the change."""
    norm = Norm(False, 0.0, np.full(r.shape[1], r.shape[1] ** -0.5), np.zeros(r.shape[1]))
    return norm if same(norm(r), c, scene.allowed) else None
