"""Pairs of a living hypothesis and a token that may follow it: the likely ones, found without trying all."""

from __future__ import annotations

import numpy as np

from workbench.decoding.ctc_beam.selection import LOWEST


def likely_pairs(
    base: np.ndarray, log_probs: np.ndarray, cut: np.ndarray, allowed: np.ndarray, most: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs of a row (its flat index) and a token whose sum reaches the cut, in a fixed order.

    Args:
        base: scores of the rows, float64 [utterances, rows].
        log_probs: of the tokens in this frame, float64 [utterances, vocabulary].
        cut: float64 [utterances].
        allowed: tokens that may be appended, bool [utterances, vocabulary] or [vocabulary].
        most: the best so many pairs of each utterance are enough; a few more may come. None for all pairs.
    """
    rows = base.shape[1]
    order = np.argsort(-base, axis=1, kind="stable")
    falling = np.take_along_axis(base, order, axis=1)
    likely = (log_probs >= np.maximum(cut - falling[:, 0], LOWEST)[:, None]) & allowed
    if most is not None and np.count_nonzero(likely) * rows > 2 * most * len(base):
        cut = np.maximum(cut, _rank_bound(falling, np.where(likely, log_probs, -np.inf), most))
        likely &= log_probs >= np.maximum(cut - falling[:, 0], LOWEST)[:, None]
    utterance, token = np.divmod(np.flatnonzero(likely), likely.shape[1])
    chances = log_probs[utterance, token]
    # The last rows of the falling order reach the cut with no token.
    best = np.full(len(base), -np.inf)
    np.maximum.at(best, utterance, chances)
    used = int(np.count_nonzero(falling + best[:, None] >= cut[:, None], axis=1).max(initial=0))
    if not used:
        return utterance[:0], token[:0]
    found = np.flatnonzero(falling[:, :used][utterance] + chances[:, None] >= cut[utterance][:, None])
    pair, rank = np.divmod(found, used)
    return utterance[pair] * rows + order[utterance[pair], rank], token[pair]


def _rank_bound(first: np.ndarray, second: np.ndarray, most: int) -> np.ndarray:
    """Returns a number that the best `most` sums of an entry of each array reach, float64 [utterances].

    `first` falls along its rows. If the second does so too, i x j sums reach the sum of the i-th and the j-th entry.
    -inf if there are fewer.
    """
    if second.shape[1] > most:
        second = np.partition(second, second.shape[1] - most, axis=1)[:, -most:]
    second = np.sort(second, axis=1)[:, ::-1]
    i = np.arange(min(first.shape[1], most))
    j = -(-most // (i + 1)) - 1
    i, j = i[j < second.shape[1]], j[j < second.shape[1]]
    bound: np.ndarray = (first[:, i] + second[:, j]).max(axis=1, initial=-np.inf)
    return bound
