"""Pairs of a living hypothesis and a token that may follow it: the likely ones, found without trying all."""

from __future__ import annotations

import numpy as np

from workbench.decoding.ctc_beam.selection import LOWEST

SAMPLED = 16  # one of so many tokens of a large vocabulary


def likely_pairs(
    base: np.ndarray, log_probs: np.ndarray, cut: np.ndarray, allowed: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs of a row (its flat index) and a token whose sum reaches the cut, in a fixed order.

    Args:
        base: scores of the rows, float64 [utterances, rows].
        log_probs: of the tokens in this frame, float64 [utterances, vocabulary].
        cut: float64 [utterances].
        allowed: tokens that may be appended, bool [utterances, vocabulary] or [vocabulary].
        most: the best so many pairs of each utterance are enough; equally good ones come as well.
    """
    rows = base.shape[1]
    order = np.argsort(-base, axis=1, kind="stable")
    falling = np.take_along_axis(base, order, axis=1)
    likely = (log_probs >= np.maximum(cut - falling[:, 0], LOWEST)[:, None]) & allowed
    many = np.count_nonzero(likely, axis=1) * np.count_nonzero(falling > -np.inf, axis=1) > 2 * most
    if many.any():
        cut = np.where(many, np.maximum(cut, _rank_bound(falling, log_probs, likely, most)), cut)
        likely &= log_probs >= np.maximum(cut - falling[:, 0], LOWEST)[:, None]
    utterance, token = np.divmod(np.flatnonzero(likely), likely.shape[1])
    chances = log_probs[utterance, token]
    # The last rows of the falling order reach the cut with no token.
    best = np.full(len(base), -np.inf)
    np.maximum.at(best, utterance, chances)
    used = int(np.count_nonzero(falling + best[:, None] >= cut[:, None], axis=1).max(initial=0))
    if not used:
        return utterance[:0], token[:0]
    sums = (falling[:, :used][utterance] + chances[:, None]).ravel()
    found = np.flatnonzero(sums >= np.repeat(cut[utterance], used))
    pair, rank = np.divmod(found, used)
    counts = np.bincount(utterance[pair], minlength=len(base))
    width = int(counts.max())
    if width > most:
        ranked = np.full((len(base), width), -np.inf)
        ranked[utterance[pair], np.arange(len(pair)) - (np.cumsum(counts) - counts)[utterance[pair]]] = sums[found]
        last = np.partition(ranked, width - most, axis=1)[:, width - most]
        best_pairs = sums[found] >= last[utterance[pair]]
        pair, rank = pair[best_pairs], rank[best_pairs]
    return utterance[pair] * rows + order[utterance[pair], rank], token[pair]


def _rank_bound(falling: np.ndarray, log_probs: np.ndarray, likely: np.ndarray, most: int) -> np.ndarray:
    """Returns a number that the sums of at least `most` pairs reach, float64 [utterances]; -inf if there are fewer.

    With tokens in falling order as well, i x j pairs reach the sum of the i-th row and the j-th token. Any tokens will
    do for this; of a large vocabulary, those above a limit that a sample of it suggests are enough.
    """
    if log_probs.shape[1] > SAMPLED * most:
        sample = log_probs[:, ::SAMPLED]
        rank = sample.shape[1] - 1 - 3 * most // SAMPLED
        likely = likely & (log_probs >= np.partition(sample, rank, axis=1)[:, rank, None])
    utterance, token = np.divmod(np.flatnonzero(likely), likely.shape[1])
    starts = np.searchsorted(utterance, np.arange(len(falling)))
    place = np.arange(len(token)) - starts[utterance]
    chances = np.full((len(falling), int(place.max(initial=0)) + 1), -np.inf)
    chances[utterance, place] = log_probs[utterance, token]
    chances = np.sort(chances, axis=1)[:, ::-1]
    i = np.arange(min(falling.shape[1], most))
    j = -(-most // (i + 1)) - 1
    i, j = i[j < chances.shape[1]], j[j < chances.shape[1]]
    bound: np.ndarray = (falling[:, i] + chances[:, j]).max(axis=1, initial=-np.inf)
    return bound
