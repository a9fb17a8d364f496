"""Counts the n-grams of a text whose words are numbers. Knows no probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Counted:
    """The distinct n-grams of one order."""

    words: np.ndarray  # int32 [n-grams, order]
    count: np.ndarray  # int64 [n-grams], the number of occurrences
    prefix: np.ndarray  # int64 [n-grams], the place of all words but the last among the n-grams of the order below
    suffix: np.ndarray  # int64 [n-grams], the place of all words but the first


def count_ngrams(text: np.ndarray, end: int, words: int, order: int) -> list[Counted]:
    """Returns the n-grams of order 1, 2, ... of sentences; no order above the length of the longest sentence.

    No n-gram goes beyond a sentence. Those of order 1 are all words, in their order, whether they occur or not.

    Args:
        text: int64 [tokens], the sentences one after the other; each ends with `end`, which is nowhere else.
        words: number of words.
        order: the highest order.
    """
    ones = np.zeros(words, np.int64)
    counted = [Counted(np.arange(words, dtype=np.int32)[:, None], np.bincount(text, minlength=words), ones, ones)]
    ends = np.flatnonzero(text == end)
    room = np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(len(text))  # words to the end of the sentence
    places = np.arange(len(text))  # where the n-grams of the last order begin
    codes = text  # [tokens], the n-gram that begins at each place; only those of `places` have a meaning
    for length in range(2, order + 1):
        places = places[room[places] >= length - 1]
        if not len(places):
            break
        keys = codes[places] * words + text[places + length - 1]
        _, first, code, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        first = places[first]
        ngrams = text[first[:, None] + np.arange(length)].astype(np.int32)
        counted.append(Counted(ngrams, count, codes[first], codes[first + 1]))
        codes = np.zeros(len(text), np.int64)
        codes[places] = code
    return counted
