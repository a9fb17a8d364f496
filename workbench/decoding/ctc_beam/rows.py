"""The living hypotheses of a batch, as arrays: a row for each, in which it stays for as long as it lives.

A row is a pair of a token prefix and, with a lexicon, the words so far. The rows of one prefix have equal acoustic
masses. This file stores and moves; it knows no scores.
"""

from __future__ import annotations

import sys

import numpy as np

from workbench.decoding.ctc_beam.trees import Tree

# Whole numbers of a row. States are those of the language models, the spelling and the phrases.
PREFIX, PARENT, LAST, LENGTH, TOKEN_STATE, HISTORY, WORDS, SPELLING, WORD_STATE, NEURAL_STATE, PHRASE, EARNED = range(
    12
)
# Natural logarithms: alignments that end in a blank, in the last token, both; then what does not depend on alignments.
BLANK_MASS, TOKEN_MASS, MASS, TOKEN_LM, WORD_LM, NEURAL_LM, LANGUAGE = range(7)

TREE_LIMIT = 1 << 17  # prefixes that may have numbers before those without living descendants are forgotten


class Rows:
    """The rows of some utterances: `ints` [12, utterances, rows] and `floats` [7, utterances, rows].

    An empty row has the prefix -1 and masses of -inf. There are only as many rows as were needed so far.
    """

    def __init__(self, utterances: int, vocabulary: int, words: int):
        self.utterances = utterances
        self.ints = np.zeros((12, utterances, 1), dtype=np.int64)
        self.floats = np.zeros((7, utterances, 1))
        self.prefixes = Tree(utterances, vocabulary)  # an empty prefix for each utterance
        self.histories = Tree(1, words)
        self.ints[PREFIX, :, 0] = np.arange(utterances)
        self.ints[[PARENT, LAST]] = -1
        self.floats[TOKEN_MASS] = -np.inf
        self.crowded = np.zeros(utterances, dtype=bool)  # whether the search ever dropped a hypothesis
        self._row_of = np.full(len(self.prefixes.parents) + 1, -1, dtype=np.int64)  # the last one is for prefix -1
        self._row_of[:utterances] = 0
        self._limit = TREE_LIMIT

    @property
    def capacity(self) -> int:
        """Rows of an utterance."""
        return self.ints.shape[2]

    def grow(self, rows: int) -> None:
        """Makes room for at least so many rows of an utterance."""
        if rows > self.capacity:
            more = max(rows, 2 * self.capacity) - self.capacity
            ints = np.zeros((12, self.utterances, more), dtype=np.int64)
            ints[[PREFIX, PARENT, LAST]] = -1
            self.ints = np.concatenate([self.ints, ints], axis=2)
            self.floats = np.concatenate([self.floats, np.full((7, self.utterances, more), -np.inf)], axis=2)

    def rows_of(self, prefixes: np.ndarray) -> np.ndarray:
        """Returns a row in which each prefix lives (within its utterance), or -1; `prefixes` may hold -1."""
        found: np.ndarray = self._row_of[prefixes]
        return found

    def drop(self, gone: np.ndarray) -> None:
        """Empties the rows of the first utterances where `gone` [utterances, rows] is true."""
        count = len(gone)
        self._row_of[self.ints[PREFIX, :count][gone]] = -1
        for ints in (PREFIX, PARENT):
            self.ints[ints, :count][gone] = -1
        for floats in (BLANK_MASS, TOKEN_MASS, MASS):
            self.floats[floats, :count][gone] = -np.inf

    def put(self, utterances: np.ndarray, rows: np.ndarray, ints: np.ndarray, floats: np.ndarray) -> None:
        """Writes new hypotheses into rows: ints [12, n] with the parent's prefix in PARENT, floats [7, n]."""
        ints[PREFIX] = self.prefixes.number(ints[PARENT], ints[LAST])
        if len(self._row_of) <= len(self.prefixes.parents):
            more = len(self.prefixes.parents) + 1 - len(self._row_of)
            self._row_of = np.concatenate([self._row_of, np.full(more, -1, dtype=np.int64)])
        self.ints[:, utterances, rows] = ints
        self.floats[:, utterances, rows] = floats
        self._row_of[ints[PREFIX]] = rows

    def find_again(self) -> None:
        """Finds a row of every living prefix anew, after one of several rows of a prefix may have been dropped."""
        alive = self.ints[PREFIX] >= 0
        self._row_of[self.ints[PREFIX][alive]] = np.nonzero(alive)[1]

    def remember(self) -> None:
        """Keeps all numbers of prefixes and histories, however many there will be."""
        self._limit = sys.maxsize

    def forget(self) -> None:
        """Forgets the prefixes and histories that no living hypothesis begins with, when there are many."""
        if max(self.prefixes.size, self.histories.size) < self._limit:
            return
        alive = self.ints[PREFIX] >= 0
        self.prefixes, renamed = self.prefixes.keep(self.ints[PREFIX][alive])
        renamed = np.append(renamed, -1)  # for -1, the parent of the empty prefix
        for column in (PREFIX, PARENT):
            self.ints[column][alive] = renamed[self.ints[column][alive]]
        self.histories, renamed = self.histories.keep(self.ints[HISTORY][alive])
        self.ints[HISTORY][alive] = renamed[self.ints[HISTORY][alive]]
        self._row_of = np.full(len(self.prefixes.parents) + 1, -1, dtype=np.int64)
        self.find_again()
        self._limit = max(TREE_LIMIT, 2 * max(self.prefixes.size, self.histories.size))
