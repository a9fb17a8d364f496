"""Attention computed again from the queries, keys and values of a layer, and what entered it on both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from workbench.compare.guesses.guess import Rows, Scene
from workbench.compare.guesses.rotations import LAYOUTS, Complex, angles_between, turns
from workbench.compare.guesses.sinusoids import laid_out, rates

Mask = Callable[[Rows, np.ndarray], np.ndarray]
"""Takes indices of queries [rows, 1] and of keys [1, keys]; returns which keys each query sees."""
Between = Callable[[Rows, np.ndarray], np.ndarray]
"""Takes the same indices; returns the distance of each query from each key."""
_AT_ONCE = 1 << 20  # weights that are held at a time


def all_keys(queries: Rows, keys: np.ndarray) -> np.ndarray:
    """Returns a mask that hides nothing."""
    return (queries >= 0) & (keys >= 0)


def earlier_keys(queries: Rows, keys: np.ndarray) -> np.ndarray:
    """Returns the causal mask."""
    return keys <= queries


@dataclass(frozen=True)
class Rotation:
    """Rotary positions of queries and keys: their angles [rows, pairs] as e^(i angle), for the first channels."""

    layout: str
    queries: Complex
    keys: Complex

    def turned(self, x: np.ndarray, angles: Complex) -> np.ndarray:
        """Returns queries or keys [rows, heads, width], turned by these angles."""
        paired, unpaired = LAYOUTS[self.layout]
        part = 2 * angles.shape[1]
        turned = unpaired(paired(x[..., :part]) * angles[:, None])
        return turned if part == x.shape[2] else np.concatenate([turned, x[..., part:]], axis=-1)


@dataclass(frozen=True)
class Distances:
    """Relative positions of a Conformer: a bias for the content, and scores of the distance from key to query.

    Source: Dai et al. 2019, Transformer-XL; sines are in even channels and cosines in odd ones.
    """

    weight: np.ndarray  # [channels, channels], of the projection of the sinusoids
    content_bias: np.ndarray  # u, [heads, width]
    position_bias: np.ndarray  # v
    between: Between = lambda queries, keys: queries - keys
    base: float = 10000.0
    layout: str = "interleaved"  # of the sinusoids, one of `sinusoids.LAYOUTS`
    content_times: float = 1.0  # factors of the two scores
    position_times: float = 1.0

    def scores(self, q: np.ndarray, k: np.ndarray, rows: Rows, heads: np.ndarray) -> np.ndarray:
        """Returns the scores [heads, rows, keys] of queries [rows, heads, width] with keys, before their scale."""
        u, v = self.content_bias[heads], self.position_bias[heads]
        distances = np.broadcast_to(self.between(rows[:, None], np.arange(len(k))[None]), (len(rows), len(k)))
        nearest, farthest = int(distances.min()), int(distances.max())
        positions = self._sinusoids(np.arange(nearest, farthest + 1)) @ self.weight.T
        positions = positions.reshape(len(positions), *self.content_bias.shape)[:, heads]
        content = np.einsum("rhd,khd->hrk", q + u, k, optimize=True)
        by_distance = np.einsum("rhd,phd->hrp", q + v, positions, optimize=True)
        places = np.broadcast_to(distances - nearest, content.shape)
        return np.asarray(
            self.content_times * content + self.position_times * np.take_along_axis(by_distance, places, axis=2)
        )

    def _sinusoids(self, distances: np.ndarray) -> np.ndarray:
        angles = distances[:, None] * rates(len(self.weight), self.base)
        return laid_out(np.sin(angles), np.cos(angles), self.layout)


@dataclass(frozen=True)
class Attention:
    """Attention of all queries of a layer; what a fault may change is a field."""

    q: np.ndarray  # [rows, heads, width]
    k: np.ndarray  # [keys, key heads, width]
    v: np.ndarray
    scale: float
    mask: Mask
    rotation: Rotation | None = None  # of `q` and `k`; None if they are turned already, or never
    distances: Distances | None = None  # relative positions; None without them
    in_turn: bool = False  # whether query head h reads key head h % (key heads), not its neighbour
    over_queries: bool = False  # whether the weights of a key, not of a query, sum to 1
    zero_keys: int = 0  # further keys of zeros, with values of zeros
    rounded: Callable[[np.ndarray], np.ndarray] | None = None  # rounds the scores and the weights

    @property
    def heads(self) -> np.ndarray:
        """The numbers of all heads."""
        return np.arange(self.q.shape[1])

    def weights(self, heads: np.ndarray) -> np.ndarray:
        """Returns the weights of some heads [heads, queries, keys]."""
        return self._softmax(self._scores(np.arange(len(self.q)), heads), heads)

    def context(self, rows: Rows, heads: np.ndarray | None = None) -> np.ndarray:
        """Returns weights times values of some queries [rows, heads x width], by default of all heads."""
        heads = self.heads if heads is None else heads
        values = np.ascontiguousarray(self._shared(self.v, heads).swapaxes(0, 1))
        step = max(1, _AT_ONCE // max(len(heads) * len(self.k), 1))
        blocks = (rows[first : first + step] for first in range(0, len(rows), step))
        contexts = [self._softmax(self._scores(each, heads), heads) @ values for each in blocks]
        return np.concatenate(contexts, axis=1).swapaxes(0, 1).reshape(len(rows), -1)

    def _scores(self, rows: Rows, heads: np.ndarray) -> np.ndarray:
        """Returns the scaled scores [heads, rows, keys], minus infinity where a key is hidden."""
        q, k = self.q[rows][:, heads], self._shared(self.k, heads)
        if self.rotation:
            q = self.rotation.turned(q, self.rotation.queries[rows])
            k = self.rotation.turned(k, self.rotation.keys)
        mask = self.mask(rows[:, None], np.arange(len(self.k))[None])
        if self.distances:
            return np.where(mask, self.distances.scores(q, k, rows, heads) * self.scale, -np.inf)
        # Products of arrays that are not contiguous are slow.
        q, k = (np.ascontiguousarray(each.swapaxes(0, 1)) for each in (q, k))
        return np.where(mask, q @ k.swapaxes(1, 2) * self.scale, -np.inf)

    def _shared(self, x: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Returns keys or values [keys, heads, width] of some query heads."""
        return x[:, heads % x.shape[1] if self.in_turn else heads // (self.q.shape[1] // x.shape[1])]

    def _softmax(self, scores: np.ndarray, heads: np.ndarray) -> np.ndarray:
        if self.over_queries:
            every = self._scores(np.arange(len(self.q)), heads)
            most = every.max(axis=1, keepdims=True)
            return np.asarray(np.exp(scores - most) / np.exp(every - most).sum(axis=1, keepdims=True))
        if self.rounded:
            scores = self.rounded(scores)
        most = scores.max(axis=-1, keepdims=True, initial=0.0 if self.zero_keys else -np.inf)
        weights = np.exp(scores - most)
        weights /= weights.sum(axis=-1, keepdims=True) + self.zero_keys * np.exp(-most)
        return self.rounded(weights) if self.rounded else weights


def entering(scene: Scene, mask: Mask) -> tuple[Attention, Attention] | None:
    """Returns the attention of the stage's layer, of the reference and of the candidate, each without a fault; None if
    the reference does not show what enters it.

    Where the candidate has no such stage, it is computed from the candidate's stage before RoPE, or else it is the
    reference's: all stages before the first bad one are equal to within rounding.
    """
    prefix = scene.stage.removesuffix(scene.part)
    sides = list[tuple[np.ndarray, np.ndarray]]()
    rotations = list[tuple[str, np.ndarray, Complex]]()
    for projection in ("query", "key", "value"):
        cache = f"{prefix.removesuffix('attention.')}cache.{projection}"
        names = (cache, *(f"{prefix}{projection}{end}" for end in ("_rope", "_norm", "")))
        # The reference shows which of them enters; a stage before it would be another computation.
        name = next((each for each in names if each in scene.reference_stages), None)
        if name is None or scene.reference_stages[name].ndim != 3:
            return None
        reference, candidate = _both(scene, name)
        if name not in scene.before and name.endswith("_rope") and (turned := _rotation(scene, name, reference)):
            rotations.append(turned)
        if reference.shape != candidate.shape:
            return None
        sides.append((reference, candidate))
    (q, other_q), (k, other_k), (v, other_v) = sides
    if not k.shape[1] or q.shape[1] % k.shape[1] or k.shape[:2] != v.shape[:2] or q.shape[2] != k.shape[2]:
        return None
    reference_attention = Attention(q, k, v, q.shape[2] ** -0.5, mask)
    if len(rotations) < 2 or rotations[0][0] != rotations[1][0]:
        return reference_attention, replace(reference_attention, q=other_q, k=other_k, v=other_v)
    (layout, before_q, q_angles), (_, before_k, k_angles) = rotations
    angles = Rotation(layout, q_angles, k_angles)
    return reference_attention, replace(reference_attention, q=before_q, k=before_k, v=other_v, rotation=angles)


def _both(scene: Scene, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns a stage of both sides; that of the reference twice if the candidate does not have it."""
    own = scene.reference_stages[name]
    reference, candidate = scene.entered(name) if name in scene.before else (own, own)
    return np.asarray(reference, np.float64), np.asarray(candidate, np.float64)


def _rotation(scene: Scene, name: str, after: np.ndarray) -> tuple[str, np.ndarray, Complex] | None:
    """Returns the rotary embedding that gives the reference's stage `name`: its layout, what the candidate has before
    it, and its angles; None if it is of another kind.
    """
    start = name.removesuffix("_rope")
    before = next((each for each in (f"{start}_norm", start) if each in scene.reference_stages), None)
    if before is None or after.shape[2] % 2 or scene.reference_stages[before].shape != after.shape:
        return None
    reference, candidate = _both(scene, before)
    layout = next((each for each in LAYOUTS if turns(each, reference, after, scene.allowed)), None)
    if layout is None or candidate.shape != after.shape:
        return None
    return layout, candidate, angles_between(layout, reference, after)
