"""Guesses at heads of attention: a fused projection laid out by head, key heads shared by other query heads, another
scale or mask in a kernel that shows no weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close, table
from workbench.core.softmax import softmax

_PROJECTED = ("query", "key", "value")
Entering = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Queries, keys and values [rows, heads, head width]."""
_MAX_WEIGHTS = 1 << 22  # of a layer, for which the attention is computed again


def fused(scene: Scene) -> Iterator[Guess]:
    """Yields heads of the reference's queries, keys and values, in another order than the reference divides them."""
    layer, dot, part = scene.stage.rpartition("attention.")
    if part not in _PROJECTED or scene.reference.ndim != 3:
        return
    projections = [
        (name, scene.reference_stages[full])
        for name in _PROJECTED
        if (full := f"{layer}{dot}{name}") in scene.reference_stages
    ]
    shape = (len(scene.reference), scene.reference.shape[2])
    heads = [(name, n) for name, x in projections if x.ndim == 3 and x.shape[::2] == shape for n in range(x.shape[1])]
    arrays = dict(projections)
    rows = scene.sample
    order = []
    for number in range(scene.candidate.shape[1]):
        candidate_head = table(scene.candidate[rows, number])
        fitting = (
            each for each in heads if is_close(table(arrays[each[0]][rows, each[1]]), candidate_head, 2 * scene.allowed)
        )
        order.append(next(fitting, None))
    reference_heads = [each for each in order if each is not None]
    if (
        len(reference_heads) < len(order)
        or len(set(reference_heads)) < len(reference_heads)
        or len({name for name, _ in reference_heads}) < 2
    ):
        return
    listing = ", ".join(f"{name} {number}" for name, number in reference_heads[:6]) + (
        " and so on" if len(reference_heads) > 6 else ""
    )
    words = (
        f"its heads are the reference's {listing}, as when a fused projection of queries, keys and values is laid out"
    )

    def expected(rows: Rows) -> np.ndarray:
        return table(np.stack([arrays[name][rows, number] for name, number in reference_heads], axis=1))

    yield Guess("fused projection", f"{words} by head", expected)


def context(scene: Scene) -> Iterator[Guess]:
    """Yields attention weights, or weights times values, with another scale, mask, or sharing of the key heads."""
    if scene.part not in ("context", "weights") or (inputs := _entering(scene)) is None:
        return
    reference_inputs, candidate_inputs = inputs
    (q, k, _), as_weights, size = reference_inputs, scene.part == "weights", reference_inputs[0].shape[2] ** -0.5
    if q.shape[1] * len(q) * len(k) > _MAX_WEIGHTS:
        return
    shape = (q.shape[1], len(q), len(k)) if as_weights else (len(q), q.shape[1] * reference_inputs[2].shape[2])
    if scene.reference.shape != shape:
        return  # the stages of another program, which have other heads than these
    masks = ("all", "earlier") if len(q) == len(k) else ("all",)
    reference, candidate = table(scene.reference), table(scene.candidate)
    reference_mask = next(
        (
            m
            for m in masks
            if is_close(_attended(*reference_inputs, size, m, False, as_weights), reference, scene.allowed)
        ),
        None,
    )
    if reference_mask is None or is_close(
        _attended(*candidate_inputs, size, reference_mask, False, as_weights), candidate, 2 * scene.allowed
    ):
        return  # another kind of attention, or the error came in with the input

    def guess(words: str, scale: float = size, mask: str = reference_mask, in_turn: bool = False) -> Guess:
        array = _attended(*candidate_inputs, scale, mask, in_turn, as_weights)
        return Guess("attention", words, lambda rows: array[rows])

    queries_per_key = q.shape[1] // k.shape[1]
    if 1 < queries_per_key < q.shape[1]:
        yield guess(
            f"key heads are shared in turn (query head h reads key head h % {k.shape[1]}), where the reference's are "
            f"by neighbours (h // {queries_per_key})",
            in_turn=True,
        )
    yield guess("the scores are not divided by the root of the head's width", scale=1.0)
    yield guess("the scores are divided by the width of the head, not by its root", scale=size * size)
    for mask in masks:
        if mask != reference_mask:
            visible_rows = "later rows too" if mask == "all" else "no later rows"
            yield guess(f"a row sees {visible_rows}, other than the reference's", mask=mask)


def _entering(scene: Scene) -> tuple[Entering, Entering] | None:
    """Returns queries, keys and values of both sides as they enter the attention; None if they are not known."""
    prefix = scene.stage.removesuffix(scene.part)
    sides = []
    for names in (("query_rope", "query_norm", "query"), ("key_rope", "key_norm", "key"), ("value",)):
        # The reference shows which of them enters; a stage before it would be another computation.
        name = next((f"{prefix}{each}" for each in names if f"{prefix}{each}" in scene.reference_stages), None)
        if name is None or name not in scene.before or scene.reference_stages[name].ndim != 3:
            return None
        pair = [np.asarray(side, np.float64) for side in scene.entered(name)]
        if pair[0].shape != pair[1].shape:
            return None
        sides.append(pair)
    (q, q2), (k, k2), (v, v2) = sides
    is_consistent = q.shape[1] % k.shape[1] == 0 and k.shape[:2] == v.shape[:2] and q.shape[2] == k.shape[2]
    return ((q, k, v), (q2, k2, v2)) if is_consistent else None


def _attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, mask: str, in_turn: bool, weights: bool
) -> np.ndarray:
    """Returns the weights [heads, queries x keys], or weights times values [queries, heads x width]."""
    queries_per_key = q.shape[1] // k.shape[1]
    k, v = (np.tile(x, (1, queries_per_key, 1)) if in_turn else np.repeat(x, queries_per_key, axis=1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k, optimize=True) * scale
    if mask == "earlier":
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    attention_weights = softmax(scores)
    if weights:
        return attention_weights.reshape(len(attention_weights), -1)
    return np.einsum("hqk,khd->qhd", attention_weights, v, optimize=True).reshape(len(q), -1)
