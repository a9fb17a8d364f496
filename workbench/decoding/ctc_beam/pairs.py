"""Pairs of an active hypothesis and a token that may follow it: the likely ones, found without trying all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workbench.decoding.ctc_beam.selection import MIN_SCORE

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


def likely_pairs(base: np.ndarray, log_probs: np.ndarray, cut: np.ndarray, limit: int) -> Pairs:
    """Returns the pairs of a row and a token whose sum reaches the cut, by utterance, in a fixed order.

    Rows and tokens are sorted, best first and counted from 1. Then at least i x j pairs are as good as the pair of the
    i-th row and the j-th token. So only pairs with i x j <= `limit` are tried: a few hundred for each utterance.

    Args:
        base: scores of the rows, float64 [utterances, rows].
        log_probs: of the tokens in this frame, float64 [utterances, vocabulary]; -inf for those that may not follow.
        cut: float64 [utterances].
        limit: the number of pairs that are needed for each utterance; the best are returned.
    """
    count, rows = base.shape
    cut = np.maximum(cut, MIN_SCORE)[:, None]
    order = np.argsort(-base, axis=1, kind="stable")
    order += np.arange(0, count * rows, rows)[:, None]
    base = base.take(order)
    best_log_probs, tokens = _best_tokens(log_probs, cut - base[:, :1], limit)
    # Rows that reach the cut with the best token, and tokens that reach it with the best row.
    needed_rows = int(np.count_nonzero((base >= cut - best_log_probs[:, :1]).any(axis=0)))
    needed_tokens = int(np.count_nonzero((best_log_probs >= cut - base[:, :1]).any(axis=0)))
    i, j = _early_pairs(min(_rounded(needed_rows), rows), min(_rounded(needed_tokens), best_log_probs.shape[1]), limit)
    sums = base.take(i, axis=1) + best_log_probs.take(j, axis=1)
    indices = (sums >= cut).ravel().nonzero()[0]
    utterances = indices // len(i)
    if len(indices) > limit:
        above_limit = (np.bincount(utterances, minlength=count) > limit).nonzero()[0]
        if len(above_limit):
            cut[above_limit, 0] = np.partition(sums.take(above_limit, axis=0), len(i) - limit, axis=1)[
                :, len(i) - limit
            ]
            indices = (sums >= cut).ravel().nonzero()[0]
            utterances = indices // len(i)
    positions = indices - utterances * len(i)
    j = j.take(positions) + utterances * best_log_probs.shape[1]
    tokens = tokens.take(j)
    return Pairs(order.take(i.take(positions) + utterances * rows), tokens, utterances, best_log_probs.take(j))


def _best_tokens(log_probs: np.ndarray, minimum: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the log-probabilities of the best tokens in falling order, and the tokens.

    Both have the shape [utterances, n] for an n from 1 to `limit`. In a large vocabulary, -inf may follow the last
    token that reaches the minimum, float64 [utterances, 1].
    """
    count, vocabulary = log_probs.shape
    if vocabulary <= SAMPLED * limit:
        tokens = np.argsort(-log_probs, axis=1)[:, :limit]
        return log_probs.take(tokens + np.arange(0, count * vocabulary, vocabulary)[:, None]), tokens
    sample = log_probs[:, ::SAMPLED]
    rank = sample.shape[1] - 1 - 2 * limit // SAMPLED
    suggested = np.partition(sample, rank, axis=1)[:, rank : rank + 1]
    minimum = np.maximum(minimum, MIN_SCORE)
    places_reached, utterances, counts = _reaching(log_probs, np.maximum(minimum, suggested))
    is_short = (counts < limit)[:, None] & (minimum < suggested)
    if is_short.any():
        places_reached, utterances, counts = _reaching(
            log_probs, np.where(is_short, minimum, np.maximum(minimum, suggested))
        )
    width = _rounded(int(counts.max(initial=0)))
    targets = np.arange(len(places_reached)) + (np.arange(count) * width - counts.cumsum() + counts).take(utterances)
    best_log_probs, tokens = np.full(count * width, -np.inf), np.zeros(count * width, dtype=np.int64)
    best_log_probs[targets], tokens[targets] = log_probs.take(places_reached), places_reached - utterances * vocabulary
    order = np.argsort(-best_log_probs.reshape(count, width), axis=1)[:, :limit]
    order += np.arange(0, count * width, width)[:, None]
    return best_log_probs.take(order), tokens.take(order)


def _reaching(values: np.ndarray, limit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the flat places of values [utterances, n] that reach a limit [utterances, 1], and their utterances, both
    int64 [m], and how many they are in each utterance.
    """
    places = (values >= limit).ravel().nonzero()[0]
    utterances = places // values.shape[1]
    return places, utterances, np.bincount(utterances, minlength=len(values))


def _rounded(number: int) -> int:
    """Returns a power of 2 that is not smaller, so that few sizes occur."""
    return 1 << max(number - 1, 0).bit_length()


@lru_cache(maxsize=64)
def _early_pairs(rows: int, tokens: int, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs (row, token), counted from 0, with (row + 1) * (token + 1) <= `limit`: two arrays int64 [n]."""
    widths = np.minimum(limit // np.arange(1, rows + 1), tokens)
    i = np.repeat(np.arange(rows), widths)
    return i, np.arange(len(i)) - np.repeat(np.cumsum(widths) - widths, widths)
