"""An attention with one fault: other scores, masks, sums and rotary embeddings, or queries, keys and values exchanged.

Each function yields words and the attention that they describe. This file knows no stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from workbench.compare.guesses.attended import Attention, Mask, Rotation, all_keys, earlier_keys
from workbench.compare.guesses.guess import is_close
from workbench.compare.guesses.rotations import BASES, LAYOUT_WORDS, LAYOUTS, SHIFTS, Complex, base_of
from workbench.compare.guesses.rounding import rounded_to_bfloat16, rounded_to_float16
from workbench.core.phrases import enumerated

Tried = Iterator[tuple[str, Attention]]
_LONGEST_CHUNK = 64
_SLACK = 8  # rows before the first visible difference where a mask or a position may begin to differ


def exchanged_parts(right: Attention) -> Tried:
    """Yields queries, keys and values in another order, as of a fused projection that is divided in another order."""
    parts = {"queries": right.q, "keys": right.k, "values": right.v}
    if right.q.shape != right.k.shape:
        yield "its keys and values are exchanged", replace(right, k=right.v, v=right.k)
        return
    for order in list(permutations(parts))[1:]:
        moved = [(name, other) for name, other in zip(parts, order) if name != other]
        words = "its " + enumerated([f"{name} are the reference's {other}" for name, other in moved])
        if len(moved) == 2:
            words = f"its {moved[0][0]} and {moved[1][0]} are exchanged"
        q, k, v = (parts[name] for name in order)
        yield words, replace(right, q=q, k=k, v=v)


def other_heads(right: Attention) -> Tried:
    """Yields other numbers of heads, of as many queries as keys."""
    rows, heads, width = right.q.shape
    if right.rotation or right.distances or right.q.shape != right.k.shape or right.k.shape != right.v.shape:
        return
    for count in (*(heads * times for times in (2, 4)), *(heads // less for less in (2, 4))):
        if count and heads * width % count == 0:
            q, k, v = (each.reshape(rows, count, -1) for each in (right.q, right.k, right.v))
            yield (
                f"it has {count} heads, where the reference has {heads}",
                replace(right, q=q, k=k, v=v, scale=q.shape[2] ** -0.5),
            )


def other_scores(right: Attention, masks: Sequence[Mask], widths: Sequence[int]) -> Tried:
    """Yields key heads that are shared otherwise, other scales of the scores, and the other ones of these masks.

    Args:
        widths: of neighbouring stages, by whose root a port may divide the scores.
    """
    heads, key_heads, size = right.q.shape[1], right.k.shape[1], right.scale
    if 1 < heads // key_heads < heads:
        yield (
            f"key heads are shared in turn (query head h reads key head h % {key_heads}), where the reference's are "
            f"by neighbours (h // {heads // key_heads})",
            replace(right, in_turn=True),
        )
    yield "the scores are not divided by the root of the head's width", replace(right, scale=1.0)
    words = "the scores are divided by the width of the head, not by its root"
    yield words, replace(right, scale=size * size)
    for width in widths:
        if width != right.q.shape[2]:
            words = f"the scores are divided by √{width}, not by √{right.q.shape[2]}, the root of the head's width"
            yield words, replace(right, scale=width**-0.5)
    for mask in masks:
        if mask is not right.mask:
            visible_rows = "later rows too" if mask is all_keys else "no later rows"
            yield f"a row sees {visible_rows}, other than the reference's", replace(right, mask=mask)


def other_masks(right: Attention, first: int) -> Tried:
    """Yields other masks; `first` is the first row that differs."""
    count = len(right.k)

    def masked(words: str, mask: Mask) -> tuple[str, Attention]:
        return words, replace(right, mask=lambda queries, keys: mask(queries, keys) & right.mask(queries, keys))

    if right.mask is earlier_keys:
        for more in (1, 2):
            words = (
                f"a row sees {'one later row' if more == 1 else f'{more} later rows'}, where the reference's sees none"
            )
            yield words, replace(right, mask=lambda queries, keys, more=more: keys <= queries + more)  # type: ignore[misc]
        for window in range(first, max(first - _SLACK, 0), -1):
            yield masked(
                f"a row sees only itself and the {window - 1} rows before it, where the reference's sees all earlier "
                "rows: a sliding window",
                lambda queries, keys, window=window: keys > queries - window,  # type: ignore[misc]
            )
    else:
        for chunk in range(1, min(count - 1, _LONGEST_CHUNK) + 1):
            yield masked(
                f"a row sees no rows behind the end of its chunk of {chunk}, where the reference's sees all rows",
                lambda queries, keys, chunk=chunk: keys // chunk <= queries // chunk,  # type: ignore[misc]
            )
    for words, first_key, last_key in _cuts(count):
        yield masked(
            f"its rows do not see {words} of {count} keys, which the reference's see",
            lambda queries, keys, a=first_key, b=last_key: (keys < a) | (keys >= b),  # type: ignore[misc]
        )


def _cuts(count: int) -> Iterator[tuple[str, int, int]]:
    """Yields ranges of keys that a wrong mask of padding may hide, with words."""
    for length in range(1, min(_LONGEST_CHUNK, count - 1) + 1):
        yield ("the last" if length == 1 else f"the last {length}"), count - length, count
        yield ("the first" if length == 1 else f"the first {length}"), 0, length


def other_rotations(right: Attention, first: int = 0) -> Tried:
    """Yields other rotary embeddings of queries and keys; `first` is the first row that differs."""
    if (rotation := right.rotation) is None or len(right.q) != len(right.k) or len(right.q) < 3:
        return
    layout, angles = rotation.layout, rotation.queries
    rows, pairs = angles.shape
    plain, other = np.ones_like(angles), next(each for each in LAYOUTS if each != layout)

    def both(angles: Complex, key_angles: Complex | None = None, layout: str = layout) -> Attention:
        return replace(right, rotation=Rotation(layout, angles, angles if key_angles is None else key_angles))

    words = f"RoPE turns {LAYOUT_WORDS[other]}, where the reference turns {LAYOUT_WORDS[layout]}"
    yield words, both(angles, layout=other)
    yield "RoPE is left out", both(plain)
    yield "RoPE is left out of the keys", both(angles, plain)
    yield "RoPE is left out of the queries", both(plain, rotation.keys)
    yield "RoPE is applied twice", both(angles**2)
    rates = np.angle(angles[1] * angles[0].conj())
    places = np.arange(rows)[:, None]

    def at(positions: np.ndarray, sign: float = 1.0) -> Complex:
        return np.exp(1j * sign * (np.angle(angles[0]) + positions * rates))

    if not is_close(at(places).view(np.float64), np.ascontiguousarray(angles).view(np.float64), 1e-2):
        return
    yield "RoPE turns the other way", both(angles.conj())
    for shift in SHIFTS:
        relation = f"the positions of its keys are off by {shift:+d} against those of its queries"
        yield f"RoPE: {relation}", both(angles, at(places + shift))
        yield f"RoPE turns the other way, and {relation}", both(angles.conj(), at(places + shift, -1.0))
    for start in range(first, max(first - _SLACK, 0), -1):
        for shift in SHIFTS:
            positions = at(places + np.where(places >= start, shift, 0))
            yield f"RoPE's positions are off by {shift:+d} from row {start} on", both(positions)
    base = base_of(angles)
    known = f"where the reference has {base:.0f}" if base else "where the reference has another"
    for each in BASES:
        if each != base:
            turned = np.exp(1j * places * each ** (-np.arange(pairs) / pairs))
            yield f"RoPE has the base {each:.0f}, {known}", both(turned)
    for times in (0.5, 2.0, 0.25, 4.0, 0.125, 8.0):
        words = f"RoPE turns by {times:g} times the reference's angles, as when positions are scaled"
        yield words, both(at(places * times))
    for part in (pairs, pairs // 2):
        if part % 2 or not part:
            continue
        own = [] if base is None else [base ** (-np.arange(part // 2) / (part // 2))]
        for partial_rates in (*own, rates[: part // 2]):
            words = f"RoPE turns only the first {part} of the {2 * pairs} channels of a head"
            yield words, both(np.exp(1j * places * partial_rates))


def other_sums(right: Attention) -> Tried:
    """Yields other softmaxes."""
    if len(right.q) > 1:
        words = "softmax is over the queries of each key, where the reference's is over the keys of each query"
        yield words, replace(right, over_queries=True)
    yield "softmax adds 1 to the sum that it divides by", replace(right, zero_keys=1)
    for name, rounded in (("bfloat16", rounded_to_bfloat16), ("float16", rounded_to_float16)):
        yield f"scores and softmax are in {name}", replace(right, rounded=rounded)
