"""Estimates an n-gram model from counts: interpolated Kneser-Ney smoothing with three discounts for each order.

Chen and Goodman, "An empirical study of smoothing techniques for language modeling", 1999, section 3; the details are
those of KenLM's lmplz (Heafield et al., "Scalable modified Kneser-Ney language model estimation", 2013). The
probabilities of all words, `<unk>` and `</s>` add up to 1 after every history. This file knows no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.decoding.ngram.counts import NgramCounts
from workbench.decoding.ngram.tables import Ngrams

FALLBACK = (0.5, 1.0, 1.5)
"""The discounts where counts are too few or too regular to estimate them; lmplz has the same."""
IMPOSSIBLE_LOG10 = -99.0
"""log10 of the probability of `<s>`, which no word is predicted as."""


@dataclass(frozen=True)
class Estimate:
    """A model of the counts."""

    orders: tuple[Ngrams, ...]
    guessed: tuple[int, ...]
    """The orders whose discounts are the fallback's."""


def estimate(counts: Sequence[NgramCounts], words: int, start: int) -> Estimate:
    """Returns the model of the n-grams of order 1, 2, ... that were counted.

    Args:
        words: number of words, with `<s>`, `</s>` and `<unk>`.
        start: the index of `<s>`.
    """
    orders: list[Ngrams] = []
    orders_without_estimate = []
    lower_probability = np.full(1, 1.0 / (words - 1))  # P of each word after no history and without counts; never <s>
    for order, counted in enumerate(counts, 1):
        next_counts = counts[order] if order < len(counts) else None
        adjusted = _adjusted(counted, next_counts, start)
        discounts = _discounts(adjusted)
        if discounts is None:
            orders_without_estimate.append(order)
        discount = np.array([0.0, *(discounts or FALLBACK)])[np.minimum(adjusted, 3)]
        histories = 1 if order == 1 else len(orders[-1])
        totals = np.bincount(counted.prefix, adjusted, histories)
        discount_sums = np.bincount(counted.prefix, discount, histories)
        # For the shorter history.
        backoff_weight = np.divide(discount_sums, totals, out=np.ones(histories), where=totals > 0)
        own_share = (adjusted - discount) / totals[counted.prefix]
        probability = own_share + backoff_weight[counted.prefix] * lower_probability[counted.suffix]
        log10 = np.log10(probability)
        if order == 1:
            log10[start] = IMPOSSIBLE_LOG10
        else:
            orders[-1].backoff[:] = np.log10(backoff_weight)
        orders.append(Ngrams(counted.words, log10, np.zeros(len(log10))))
        lower_probability = probability
    return Estimate(tuple(orders), tuple(orders_without_estimate))


def _adjusted(counted: NgramCounts, next_counts: NgramCounts | None, start: int) -> np.ndarray:
    """Returns the counts that are smoothed, int64 [n-grams].

    For the highest order, and for n-grams after the start of a sentence, these are the numbers of occurrences. For the
    other n-grams, these are the numbers of distinct words before them.
    """
    if next_counts is None:
        adjusted = counted.count.copy()
    else:
        preceding = np.bincount(next_counts.suffix, minlength=len(counted.count))
        adjusted = np.where(counted.words[:, 0] == start, counted.count, preceding)
    if counted.words.shape[1] == 1:
        adjusted[start] = 0
    return adjusted


def _discounts(adjusted: np.ndarray) -> tuple[float, float, float] | None:
    """Returns the discounts of the counts 1, 2, and 3 or more; None if the counts give no estimate."""
    n1, n2, n3, n4 = (int((adjusted == count).sum()) for count in (1, 2, 3, 4))
    if not (n1 and n2 and n3):
        return None
    share = n1 / (n1 + 2 * n2)
    discount_1, discount_2, discount_3 = (1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3)
    return (discount_1, discount_2, discount_3) if discount_1 > 0 and discount_2 > 0 and discount_3 > 0 else None
