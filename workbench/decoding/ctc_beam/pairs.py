"""Pairs of a living hypothesis and a token that may follow it: the likely ones, found without trying all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workbench.decoding.ctc_beam.selection import LOWEST

SAMPLED = 16  # one of so many tokens of a large vocabulary


@dataclass(frozen=True)
class Pairs:
    """Hypotheses, each with a token that may follow it; arrays [n]."""

    parents: np.ndarray  # int64: the hypotheses, as flat indices of rows
    tokens: np.ndarray  # int64
    utterances: np.ndarray  # int64
    log_probs: np.ndarray  # float64: of the tokens in this frame

    def take(self, wanted: np.ndarray) -> Pairs:
        """Returns the pairs that a mask or indices choose."""
        return Pairs(self.parents[wanted], self.tokens[wanted], self.utterances[wanted], self.log_probs[wanted])


def likely_pairs(base: np.ndarray, log_probs: np.ndarray, cut: np.ndarray, most: int) -> Pairs:
    """Returns the pairs of a row and a token whose sum reaches the cut, by utterance, in a fixed order.

    With rows and tokens in falling order, the i-th row and the j-th token have i x j pairs that are as good or better,
    their own among them. So only pairs with i x j <= most are tried: a few hundred for each utterance.

    Args:
        base: scores of the rows, float64 [utterances, rows].
        log_probs: of the tokens in this frame, float64 [utterances, vocabulary]; -inf for those that may not follow.
        cut: float64 [utterances].
        most: the best so many pairs of each utterance are enough.
    """
    count, rows = base.shape
    starts = np.arange(count)[:, None] * rows
    order = np.argsort(-base, axis=1, kind="stable") + starts
    base = base.reshape(-1).take(order)
    chances, tokens = _best_tokens(log_probs, cut - base[:, 0], most)
    used = base >= np.maximum(cut - chances[:, 0], LOWEST)[:, None]
    needed = int(np.count_nonzero(used.any(axis=0)))
    i, j = _early_pairs(min(_rounded(needed), rows), chances.shape[1], most)
    sums = base[:, i] + chances[:, j]
    found = np.flatnonzero(sums >= cut[:, None])
    utterances = found // len(i)
    if len(found) > most and np.bincount(utterances).max() > most:
        last = np.partition(sums, len(i) - most, axis=1)[:, len(i) - most]
        found = np.flatnonzero(sums >= np.maximum(cut, last)[:, None])
        utterances = found // len(i)
    at = found - utterances * len(i)
    i, j = i[at], j[at] + utterances * chances.shape[1]
    parents = order.reshape(-1)[i + utterances * rows]
    return Pairs(parents, tokens.reshape(-1)[j], utterances, chances.reshape(-1)[j])


def _best_tokens(log_probs: np.ndarray, limit: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the log-probabilities of the best tokens that reach a limit, in falling order, and the tokens.

    Both have the shape [utterances, n] for an n from 1 to `most`; -inf follows the last token that reaches the limit.
    """
    count, vocabulary = log_probs.shape
    limit = np.maximum(limit, LOWEST)
    if vocabulary > SAMPLED * most:
        sample = log_probs[:, ::SAMPLED]
        rank = sample.shape[1] - 1 - 2 * most // SAMPLED
        suggested = np.partition(sample, rank, axis=1)[:, rank]
        enough = np.count_nonzero(log_probs >= suggested[:, None], axis=1) >= most
        limit = np.where(enough, np.maximum(limit, suggested), limit)
    found = np.flatnonzero(log_probs >= limit[:, None])
    utterances = found // vocabulary
    counts = np.bincount(utterances, minlength=count)
    width = _rounded(int(counts.max(initial=0)))
    places = np.arange(len(found)) + (np.arange(count) * width - (np.cumsum(counts) - counts))[utterances]
    chances, tokens = np.full(count * width, -np.inf), np.zeros(count * width, dtype=np.int64)
    chances[places], tokens[places] = log_probs.reshape(-1)[found], found - utterances * vocabulary
    order = np.argsort(-chances.reshape(count, width), axis=1, kind="stable")[:, :most]
    order += np.arange(count)[:, None] * width
    return chances[order], tokens[order]


def _rounded(number: int) -> int:
    """Returns a power of 2 that is not smaller, so that few sizes occur."""
    return 1 << max(number - 1, 0).bit_length()


@lru_cache(maxsize=64)
def _early_pairs(rows: int, tokens: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places of row and token, from 0, of which at most `most` pairs are as good: int64 [n] each."""
    wide = np.minimum(most // np.arange(1, rows + 1), tokens)
    i = np.repeat(np.arange(rows), wide)
    return i, np.arange(len(i)) - np.repeat(np.cumsum(wide) - wide, wide)
