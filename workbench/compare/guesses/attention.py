"""Guesses at attention weights [heads, queries, keys]: another scale of the scores, another mask, other sums."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close
from workbench.core.phrases import counted

_CLOSE = 2e-3
_OTHER_SUM = 1e-3  # relative difference from 1 of a sum of weights that rounding does not explain
_MIN_WEIGHT = 1e-6  # of a key that one side sees and the other hides
_USUAL_WIDTHS = range(16, 257, 4)  # of a head, where no stage shows its width


def weights(scene: Scene) -> Iterator[Guess]:
    """Yields the reference's weights under another factor of the scores, or with other hidden keys."""
    r, c = scene.reference, scene.candidate
    if scene.part != "weights" or r.ndim != 3 or r.size > 1 << 24:
        return
    r, c = np.asarray(r, np.float64), np.asarray(c, np.float64)
    if not (np.isfinite(c).all() and (r >= 0).all() and (c >= 0).all()):
        return
    visible_to_both = (r > 0) & (c > 0)
    yield from _scaled(scene, r, c, visible_to_both)  # other scores may also be too small for a weight above 0
    if not np.array_equal(r > 0, c > 0):
        yield from _masked(r, c, visible_to_both)
    yield from _other_sums(r, c)


def _scaled(scene: Scene, r: np.ndarray, c: np.ndarray, visible_to_both: np.ndarray) -> Iterator[Guess]:
    with np.errstate(all="ignore"):
        x, y = (np.where(visible_to_both & (r > 1e-6) & (c > 1e-6), np.log(side), np.nan) for side in (r, c))
        x, y = (side - np.nansum(side, -1, keepdims=True) / np.isfinite(side).sum(-1, keepdims=True) for side in (x, y))
    finite = np.isfinite(x) & np.isfinite(y)
    square = float(np.square(x[finite]).sum())
    if not square:
        return
    times = float((x[finite] * y[finite]).sum()) / square
    width_clause = division_clause(times, len(r), _head_width(scene))

    def expected(rows: Rows) -> np.ndarray:
        with np.errstate(all="ignore"):
            scores = times * np.log(r[rows])
            exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
            return np.asarray((exponentials / exponentials.sum(axis=-1, keepdims=True)).reshape(len(rows), -1))

    yield Guess("scale of scores", f"the scores are {times:.5g} times the reference's{width_clause}", expected)


def _other_sums(r: np.ndarray, c: np.ndarray) -> Iterator[Guess]:
    """Yields weights of the reference's scores that are divided by other sums than those over the keys of a query."""
    sums = c.sum(axis=-1, keepdims=True)
    if (np.abs(sums - 1) > _OTHER_SUM).any():
        words = (
            f"the weights of a query sum to {sums.min():.4g} to {sums.max():.4g}, not to 1, and are in the reference's "
            "proportion: softmax divides by another sum"
        )
        yield Guess("softmax", words, lambda rows: (r[rows] * sums[rows]).reshape(len(rows), -1))
    if not ((r > 0).all() and (c > 0).all() and is_close(np.ones(c[:, 0].shape), c.sum(axis=1), _OTHER_SUM)):
        return
    ratios = np.log(c / r)
    of_queries, of_keys = ratios.mean(axis=2, keepdims=True), ratios.mean(axis=1, keepdims=True)
    ratios = of_queries + of_keys - ratios.mean(axis=(1, 2), keepdims=True)
    words = "softmax is over the queries of each key, where the reference's is over the keys of each query"
    yield Guess("softmax", words, lambda rows: (r[rows] * np.exp(ratios[rows])).reshape(len(rows), -1))


def _head_width(scene: Scene) -> int | None:
    """Returns the width of a head by the other stages of the attention; None if there are none."""
    prefix = scene.stage.removesuffix(scene.part)
    for part in ("query", "key", "value"):
        if f"{prefix}{part}" in scene.reference_stages:
            return int(scene.reference_stages[f"{prefix}{part}"].shape[-1])
    if f"{prefix}context" in scene.reference_stages:
        return int(scene.reference_stages[f"{prefix}context"].shape[-1]) // len(scene.reference)
    return None


def division_clause(times: float, heads: int, head_width: int | None) -> str:
    """Returns which division by a width gives the scores this factor, as an addition to the sentence."""
    for width in _USUAL_WIDTHS if head_width is None else (head_width,):
        if math.isclose(times, width**0.5, rel_tol=_CLOSE):
            return f", as without division by √{width}"
        if math.isclose(times, width**-0.5, rel_tol=_CLOSE):
            return f", as with a second division by √{width}"
    if head_width and heads > 1 and math.isclose(times, heads**-0.5, rel_tol=_CLOSE):
        return f", as with division by √{heads * head_width} (all heads), not by √{head_width} (one head)"
    for width in _USUAL_WIDTHS if head_width else ():
        if math.isclose(times, math.sqrt((head_width or 1) / width), rel_tol=_CLOSE / 10):
            return f", as with division by √{width}, not by √{head_width}"
    return ""


def _masked(r: np.ndarray, c: np.ndarray, visible_to_both: np.ndarray) -> Iterator[Guess]:
    """Yields another mask, if the weights of the keys that both sides see are in proportion."""
    # A weight may also be zero because its score is low.
    added, missing = (
        int(each.any(axis=0).sum()) for each in ((c > _MIN_WEIGHT) & (r == 0), (r > _MIN_WEIGHT) & (c == 0))
    )
    if not added and not missing:
        return
    shared = [np.where(visible_to_both, side, 0.0) for side in (r, c)]
    with np.errstate(all="ignore"):
        reference_weights, candidate_weights = (side / side.sum(axis=-1, keepdims=True) for side in shared)
    reference_weights, candidate_weights = np.nan_to_num(reference_weights), np.nan_to_num(candidate_weights)
    if not reference_weights.any():
        return
    phrases = [
        f"{counted(count, 'pair')} of query and key that the reference {verb}"
        for count, verb in ((added, "hides"), (missing, "sees"))
        if count
    ]
    words = "other keys are hidden: it " + " and ".join(
        f"{'sees' if 'hides' in each else 'hides'} {each}" for each in phrases
    )

    def expected(rows: Rows) -> np.ndarray:
        with np.errstate(all="ignore"):
            total = shared[1][rows].sum(axis=-1, keepdims=True)
        return np.asarray(
            np.where(visible_to_both[rows], reference_weights[rows] * total, c[rows]).reshape(len(rows), -1)
        )

    if is_close(reference_weights, candidate_weights, 1e-2):
        yield Guess("mask", words, expected)
