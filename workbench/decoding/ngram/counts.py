"""Counts the n-grams of a text whose words are numbers. Knows no probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NgramCounts:
    """The distinct n-grams of one order."""

    words: np.ndarray  # int32 [n-grams, order]
    count: np.ndarray  # int64 [n-grams], the number of occurrences
    prefix: np.ndarray  # int64 [n-grams], the place of all words but the last among the n-grams of the order below
    suffix: np.ndarray  # int64 [n-grams], the place of all words but the first


def count_ngrams(text: np.ndarray, end: int, words: int, order: int) -> list[NgramCounts]:
    """Returns the n-grams of order 1, 2, ... of sentences; no order above the length of the longest sentence.

    No n-gram goes beyond a sentence. Those of order 1 are all words, in their order, whether they occur or not.

    Args:
        text: int64 [tokens], the sentences one after the other; each ends with `end`, which is nowhere else.
        words: number of words.
        order: the highest order.
    """
    ones = np.zeros(words, np.int64)
    counts_by_order = [
        NgramCounts(np.arange(words, dtype=np.int32)[:, None], np.bincount(text, minlength=words), ones, ones)
    ]
    ends = np.flatnonzero(text == end)
    remaining = np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(len(text))  # words to the end of the sentence
    starts = np.arange(len(text))  # where the n-grams of the last order begin
    codes = text  # [tokens], the n-gram that begins at each place; only those of `starts` have a meaning
    for length in range(2, order + 1):
        starts = starts[remaining[starts] >= length - 1]
        if not len(starts):
            break
        keys = codes[starts] * words + text[starts + length - 1]
        _, first_places, code, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        first_places = starts[first_places]
        ngrams = text[first_places[:, None] + np.arange(length)].astype(np.int32)
        counts_by_order.append(NgramCounts(ngrams, count, codes[first_places], codes[first_places + 1]))
        codes = np.zeros(len(text), np.int64)
        codes[starts] = code
    return counts_by_order
