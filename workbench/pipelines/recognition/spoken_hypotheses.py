"""Joins the best hypotheses of the chunks of a recording to the best hypotheses of the whole recording.

The chunks are decoded independently of each other, so the scores of their hypotheses add up. This file knows no model.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from workbench.session.values import SpokenHypothesis

NOTHING = SpokenHypothesis("", (), None, 0.0, 0.0, 0.0)


def best_of_chunks(
    chunks: Sequence[Sequence[SpokenHypothesis]], join: Callable[[Sequence[str]], str]
) -> tuple[SpokenHypothesis, ...]:
    """Returns the best hypotheses of a recording, best first, as many as the longest list of a chunk.

    Args:
        chunks: the best hypotheses of each chunk in order, best first, with times in the recording. A chunk without any
            counts as one in which nothing is said.
        join: joins the texts of consecutive chunks.
    """
    count = max(map(len, chunks), default=0)
    if not count:
        return ()
    best = reduce(
        lambda left, right: _best_pairs(left, right or [NOTHING], count, join), chunks[1:], chunks[0] or [NOTHING]
    )
    return tuple(best)


def _best_pairs(
    left: Sequence[SpokenHypothesis],
    right: Sequence[SpokenHypothesis],
    count: int,
    join: Callable[[Sequence[str]], str],
) -> list[SpokenHypothesis]:
    """Returns the `count` best pairs of hypotheses, best first; only the best of pairs with the same text."""
    pairs: list[SpokenHypothesis] = []
    seen_texts: set[tuple[tuple[int, ...], tuple[str, ...]]] = set()
    waiting = [(-left[0].score - right[0].score, 0, 0)]
    while waiting and len(pairs) < count:
        _, i, j = heapq.heappop(waiting)
        pair = _pair(left[i], right[j], join)
        key = tuple(token.id for token in pair.tokens), tuple(word.text for word in pair.words or ())
        if key not in seen_texts:
            seen_texts.add(key)
            pairs.append(pair)
        # Each pair but the first has one parent: (i, 0) follows (i - 1, 0), and (i, j) follows (i, j - 1).
        if j == 0 and i + 1 < len(left):
            heapq.heappush(waiting, (-left[i + 1].score - right[0].score, i + 1, 0))
        if j + 1 < len(right):
            heapq.heappush(waiting, (-left[i].score - right[j + 1].score, i, j + 1))
    return pairs


def _pair(left: SpokenHypothesis, right: SpokenHypothesis, join: Callable[[Sequence[str]], str]) -> SpokenHypothesis:
    words = None if left.words is None and right.words is None else (*(left.words or ()), *(right.words or ()))
    return replace(
        left,
        text=join([left.text, right.text]),
        tokens=(*left.tokens, *right.tokens),
        words=words,
        score=left.score + right.score,
        acoustic=left.acoustic + right.acoustic,
        lm=left.lm + right.lm,
    )
