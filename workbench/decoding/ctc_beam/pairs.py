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

    def take(self, indices: np.ndarray) -> Pairs:
        """Returns the pairs at these indices."""
        return Pairs(
            self.parents.take(indices),
            self.tokens.take(indices),
            self.utterances.take(indices),
            self.log_probs.take(indices),
        )


def likely_pairs(base: np.ndarray, log_probs: np.ndarray, cut: np.ndarray, most: int) -> Pairs:
    """Returns the pairs of a row and a token whose sum reaches the cut, by utterance, in a fixed order.

    Rows and tokens are sorted, best first and counted from 1. Then at least i x j pairs are as good as the pair of the
    i-th row and the j-th token. So only pairs with i x j <= most are tried: a few hundred for each utterance.

    Args:
        base: scores of the rows, float64 [utterances, rows].
        log_probs: of the tokens in this frame, float64 [utterances, vocabulary]; -inf for those that may not follow.
        cut: float64 [utterances].
        most: the number of pairs that are needed for each utterance; the best are returned.
    """
    count, rows = base.shape
    cut = np.maximum(cut, LOWEST)[:, None]
    order = np.argsort(-base, axis=1, kind="stable")
    order += np.arange(0, count * rows, rows)[:, None]
    base = base.take(order)
    chances, tokens = _best_tokens(log_probs, cut - base[:, :1], most)
    # Rows that reach the cut with the best token, and tokens that reach it with the best row.
    needed_rows = int(np.count_nonzero((base >= cut - chances[:, :1]).any(axis=0)))
    needed_tokens = int(np.count_nonzero((chances >= cut - base[:, :1]).any(axis=0)))
    i, j = _early_pairs(min(_rounded(needed_rows), rows), min(_rounded(needed_tokens), chances.shape[1]), most)
    sums = base.take(i, axis=1) + chances.take(j, axis=1)
    found = (sums >= cut).ravel().nonzero()[0]
    utterances = found // len(i)
    if len(found) > most:
        wide = (np.bincount(utterances, minlength=count) > most).nonzero()[0]
        if len(wide):
            cut[wide, 0] = np.partition(sums.take(wide, axis=0), len(i) - most, axis=1)[:, len(i) - most]
            found = (sums >= cut).ravel().nonzero()[0]
            utterances = found // len(i)
    at = found - utterances * len(i)
    j = j.take(at) + utterances * chances.shape[1]
    tokens = tokens.take(j)
    return Pairs(order.take(i.take(at) + utterances * rows), tokens, utterances, chances.take(j))


def _best_tokens(log_probs: np.ndarray, limit: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the log-probabilities of the best tokens in falling order, and the tokens.

    Both have the shape [utterances, n] for an n from 1 to `most`. In a large vocabulary, -inf may follow the last token
    that reaches a limit, float64 [utterances, 1].
    """
    count, vocabulary = log_probs.shape
    if vocabulary <= SAMPLED * most:
        tokens = np.argsort(-log_probs, axis=1)[:, :most]
        return log_probs.take(tokens + np.arange(0, count * vocabulary, vocabulary)[:, None]), tokens
    sample = log_probs[:, ::SAMPLED]
    rank = sample.shape[1] - 1 - 2 * most // SAMPLED
    suggested = np.partition(sample, rank, axis=1)[:, rank : rank + 1]
    limit = np.maximum(limit, LOWEST)
    found, utterances, counts = _reaching(log_probs, np.maximum(limit, suggested))
    is_short = (counts < most)[:, None] & (limit < suggested)
    if is_short.any():
        found, utterances, counts = _reaching(log_probs, np.where(is_short, limit, np.maximum(limit, suggested)))
    width = _rounded(int(counts.max(initial=0)))
    places = np.arange(len(found)) + (np.arange(count) * width - counts.cumsum() + counts).take(utterances)
    chances, tokens = np.full(count * width, -np.inf), np.zeros(count * width, dtype=np.int64)
    chances[places], tokens[places] = log_probs.take(found), found - utterances * vocabulary
    order = np.argsort(-chances.reshape(count, width), axis=1)[:, :most]
    order += np.arange(0, count * width, width)[:, None]
    return chances.take(order), tokens.take(order)


def _reaching(values: np.ndarray, limit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the flat places of values [utterances, n] that reach a limit [utterances, 1], and their utterances, both
    int64 [m], and how many they are in each utterance.
    """
    found = (values >= limit).ravel().nonzero()[0]
    utterances = found // values.shape[1]
    return found, utterances, np.bincount(utterances, minlength=len(values))


def _rounded(number: int) -> int:
    """Returns a power of 2 that is not smaller, so that few sizes occur."""
    return 1 << max(number - 1, 0).bit_length()


@lru_cache(maxsize=64)
def _early_pairs(rows: int, tokens: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs (row, token), counted from 0, with (row + 1) * (token + 1) <= `most`: two arrays int64 [n]."""
    wide = np.minimum(most // np.arange(1, rows + 1), tokens)
    i = np.repeat(np.arange(rows), wide)
    return i, np.arange(len(i)) - np.repeat(np.cumsum(wide) - wide, wide)
