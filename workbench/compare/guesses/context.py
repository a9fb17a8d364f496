"""Guesses at an attention that shows only its result: another scale, mask, sum, rotary embedding or sharing of heads.

The attention is computed again from the stages that entered it, with one thing changed at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from workbench.compare.guesses.attended import (
    Attention,
    Distances,
    all_keys,
    earlier_keys,
    entering,
)
from workbench.compare.guesses.attention import division_clause
from workbench.compare.guesses.guess import Guess, Linear, Rows, Scene, is_close, relative_l2, table
from workbench.compare.guesses.other_attention import (
    Tried,
    exchanged_parts,
    other_heads,
    other_masks,
    other_rotations,
    other_scores,
    other_sums,
)
from workbench.compare.guesses.relative import POSITIONS, by_distances, distances_of
from workbench.trace.inside import layer_and_part
from workbench.trace.step_names import step_and_stage

_MAX_WEIGHTS = 1 << 24  # of a layer, for which the attention is computed again
_FEW_ROWS, _FEW_HEADS = 12, 2  # on which each guess is tried first
_POWERS = np.linspace(-6, 6, 49)  # of 2, which are tried as a factor of the scores
_HALVINGS = 40  # steps in which the factor is found
_DETERMINED = 1.01  # a fitted factor counts only if one that is so many times larger does not fit
_MIN_FOREIGN = 4  # rows that show the values of foreign keys


def context(scene: Scene) -> Iterator[Guess]:
    """Yields attention weights, or weights times values, of an attention with one fault."""
    if scene.part in ("context", "weights"):
        yield from _with_one_fault(scene, None)


def projected(scene: Scene) -> Iterator[Guess]:
    """Yields the same behind the output projection, whose weight is known, if the candidate shows no context."""
    if scene.part == "attention":
        scene = replace(scene, stage=f"{scene.stage}.output")
    name = f"{scene.stage.removesuffix('output')}context"
    if scene.layers is None or scene.part != "output" or name in scene.before or name not in scene.reference_stages:
        return
    stage = step_and_stage(scene.stage)[1]
    if (layer := scene.layers([stage]).get(stage)) is None:
        return
    right = table(scene.reference_stages[name][scene.sample])
    if right.shape[1] == layer.weight.shape[1] and is_close(layer(right), scene.pair[0], scene.allowed):
        yield from _with_one_fault(scene, layer)


def _with_one_fault(scene: Scene, projection: Linear | None) -> Iterator[Guess]:
    if (pair := entering(scene, all_keys)) is None:
        return
    reference, right = pair
    (rows, heads, _), keys, as_weights = reference.q.shape, len(reference.k), scene.part == "weights"
    width = len(projection.weight) if projection else heads * reference.v.shape[2]
    shape = (heads, rows, keys) if as_weights else (rows, width)
    if heads * rows * keys > _MAX_WEIGHTS or scene.reference.shape != shape:
        return  # too large, or the stages of another program, which have other heads than these
    probe = _Probe(scene, heads, as_weights, projection)
    masks = (all_keys, earlier_keys) if rows == keys else (all_keys,)
    mask = next((each for each in masks if probe.fits_reference(replace(reference, mask=each))), None)
    distances = _relative(scene) if mask is None and rows == keys else None
    if distances and probe.fits_reference(replace(reference, distances=distances)):
        mask = all_keys
        right = replace(right, distances=distances)
    if mask is None:
        return  # another kind of attention
    right = replace(right, mask=mask)
    if is_close(probe.computed(right, scene.sample), scene.pair[1], 2 * scene.allowed):
        return  # the error came in with the input
    first = 0 if as_weights else _first_difference(scene)
    for words, attention in chain(
        other_scores(right, masks, scene.widths),
        exchanged_parts(right),
        other_heads(right) if projection else (),
        by_distances(right),
        other_masks(right, first),
        other_rotations(right, first),
        other_sums(right),
        _rescaled(right, probe),
    ):
        if probe.error(attention) <= 4 * scene.allowed:
            yield Guess("attention", words, partial(probe.computed, attention))
    if not as_weights and projection is None:
        yield from _foreign(scene, right)


class _Probe:
    """Computes an attention as the stage shows it, and its error in a few rows of a few heads."""

    def __init__(self, scene: Scene, heads: int, as_weights: bool, projection: Linear | None):
        self._scene, self._as_weights, self._count, self._projection = scene, as_weights, heads, projection
        tried_heads = heads if projection else _FEW_HEADS  # a projection mixes all heads
        self._heads = np.unique(np.linspace(0, heads - 1, tried_heads).round().astype(int))
        rows = scene.candidate.shape[1 if as_weights else 0]
        self._rows = np.unique(np.linspace(0, rows - 1, _FEW_ROWS).round().astype(int))
        self._candidate = self._shown(scene.candidate)
        self.allowed = scene.allowed

    def computed(self, attention: Attention, rows: Rows) -> np.ndarray:
        """Returns rows of the stage: those of queries, or heads of weights."""
        if self._as_weights:
            return table(attention.weights(rows))
        return self._projection(attention.context(rows)) if self._projection else attention.context(rows)

    def error(self, attention: Attention) -> float:
        """Returns the relative L2 between the few values of an attention and those of the candidate."""
        return self._error(attention, self._candidate)

    def fits_reference(self, attention: Attention) -> bool:
        """Returns whether an attention gives the reference's stage."""
        if not self._error(attention, self._shown(self._scene.reference)) <= 4 * self.allowed:
            return False
        return is_close(self.computed(attention, self._scene.sample), self._scene.pair[0], self.allowed)

    def _error(self, attention: Attention, values: np.ndarray) -> float:
        if self._as_weights:
            return relative_l2(attention.weights(self._heads)[:, self._rows].ravel(), values)
        if self._projection:
            return relative_l2(self.computed(attention, self._rows).ravel(), values)
        return relative_l2(attention.context(self._rows, self._heads).ravel(), values)

    def _shown(self, stage: np.ndarray) -> np.ndarray:
        if self._as_weights:
            return stage[self._heads][:, self._rows].ravel().astype(np.float64)
        if self._projection:
            return table(stage[self._rows]).ravel()
        heads = stage[self._rows].reshape(len(self._rows), self._count, -1)
        return heads[:, self._heads].ravel().astype(np.float64)


def _relative(scene: Scene) -> Distances | None:
    """Returns the relative positions of the reference's checkpoint; None if it has none."""
    layer = (layer_and_part(scene.stage) or ("", ""))[0]
    return distances_of(scene.layers([f"{layer}.{each}" for each in POSITIONS]), layer) if scene.layers else None


def _first_difference(scene: Scene) -> int:
    """Returns the first row that differs by more than rounding."""
    r, c = table(scene.reference), table(scene.candidate)
    errors = np.linalg.norm(c - r, axis=1)
    return int((errors > 4 * scene.allowed * np.sqrt(np.square(r).sum() / len(r))).argmax())


def _rescaled(right: Attention, probe: _Probe) -> Tried:
    """Yields the factor of the scores that fits best, if it is determined."""

    def error_at(power: float) -> float:
        return probe.error(replace(right, scale=right.scale * 2.0**power))

    errors = [error_at(power) for power in _POWERS]
    best = int(np.argmin(errors))
    low, high = _POWERS[max(best - 1, 0)], _POWERS[min(best + 1, len(_POWERS) - 1)]
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(_HALVINGS):  # golden section
        one, two = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, two) if error_at(one) < error_at(two) else (one, high)
    times = 2.0 ** ((low + high) / 2)
    if error_at(math.log2(times * _DETERMINED)) > 2 * probe.allowed:
        clause = division_clause(times, right.q.shape[1], right.q.shape[2])
        yield f"the scores are {times:.5g} times the reference's{clause}", replace(right, scale=times * right.scale)


def _foreign(scene: Scene, right: Attention) -> Iterator[Guess]:
    """Yields an attention that also sees keys of one unknown value, such as padding that is not masked.

    Each row then lies on the line from the right context to that value. The value is where the lines of a head meet.
    """
    if len(scene.candidate) < _MIN_FOREIGN or right.v.shape[2] < _MIN_FOREIGN:
        return
    heads = right.q.shape[1]
    p = right.context(np.arange(len(scene.candidate))).reshape(len(scene.candidate), heads, -1)
    c = np.asarray(scene.candidate, np.float64).reshape(p.shape)
    predicted = np.empty_like(p)
    shares = np.empty(p.shape[:2])
    for head in range(heads):
        difference = c[:, head] - p[:, head]
        lengths = np.linalg.norm(difference, axis=1, keepdims=True)
        if np.count_nonzero(lengths > 0.01 * lengths.max(initial=0.0)) < _MIN_FOREIGN:
            return
        directions = difference / np.where(lengths, lengths, 1.0)
        squares = np.square(lengths)  # long lines show their direction best
        across = np.eye(p.shape[2]) * squares.sum() - (squares * directions).T @ directions
        target = (squares * p[:, head]).sum(axis=0) - (squares * directions).T @ (directions * p[:, head]).sum(axis=1)
        value = np.linalg.lstsq(across, target, rcond=None)[0]
        to_value = value - p[:, head]
        with np.errstate(all="ignore"):
            shares[:, head] = (difference * to_value).sum(axis=1) / np.square(to_value).sum(axis=1)
        predicted[:, head] = p[:, head] + shares[:, head, None] * to_value
    if not (np.isfinite(shares).all() and (shares > -0.01).all() and (shares < 1).all()) or shares.std() < 0.01:
        return
    words = (
        f"each head also sees keys of one other value, with {100 * shares.mean():.2g} % of the weight on average, as "
        "when padding is not masked"
    )
    yield Guess("attention", words, lambda rows: table(predicted[rows]))
