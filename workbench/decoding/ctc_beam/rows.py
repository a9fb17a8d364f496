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
        self.utterances, self._words = utterances, words
        self.ints = np.zeros((12, utterances, 1), dtype=np.int64)
        self.floats = np.zeros((7, utterances, 1))
        self.prefixes = Tree(utterances, vocabulary)  # an empty prefix for each utterance
        self.histories = Tree(1, words)
        self.ints[PREFIX, :, 0] = np.arange(utterances)
        self.ints[[PARENT, LAST]] = -1
        self.floats[TOKEN_MASS] = -np.inf
        self.crowded = np.zeros(utterances, dtype=bool)  # whether the search may have dropped a hypothesis
        self._row_of = np.full(len(self.prefixes.parents) + 1, -1, dtype=np.int64)  # the last one is for prefix -1
        self._row_of[:utterances] = 0
        self._limit = TREE_LIMIT
        self._source = np.zeros((utterances, 0), dtype=np.int64)
        self._gate = np.zeros((utterances, 0))
        self.link(np.arange(utterances))

    @property
    def capacity(self) -> int:
        """Rows of an utterance."""
        return self.ints.shape[2]

    def grow(self, rows: int) -> None:
        """Makes room for at least so many rows of an utterance."""
        if rows > self.capacity:
            more = max(rows, self.capacity * 9 // 8) - self.capacity
            ints = np.zeros((12, self.utterances, more), dtype=np.int64)
            ints[[PREFIX, PARENT, LAST]] = -1
            self.ints = np.concatenate([self.ints, ints], axis=2)
            self.floats = np.concatenate([self.floats, np.full((7, self.utterances, more), -np.inf)], axis=2)
            self.link(np.arange(self.utterances))

    def link(self, utterances: np.ndarray) -> None:
        """Notes for each row which alignments of its parent go on with its last token.

        They are all of them; if the parent ends with the same token, those that end in a blank. `parent_mass` reads
        them. It must be called for the utterances whose rows became others.
        """
        if self._source.shape[1] != self.capacity:
            self._source = np.zeros((self.utterances, self.capacity), dtype=np.int64)
            self._gate = np.full((self.utterances, self.capacity), -np.inf)
        parents = self.rows_of(self.ints[PARENT, utterances])
        last = self.ints[LAST]
        places = utterances[:, None] * self.capacity + parents
        columns = np.where(last.take(places) == last[utterances], BLANK_MASS, MASS)
        self._source[utterances] = columns * last.size + places
        self._gate[utterances] = np.where(parents >= 0, 0.0, -np.inf)

    def parent_mass(self, active: int) -> np.ndarray:
        """Returns the mass that joins each row's from its parent before its last token, float64 [active, rows].

        It is -inf where no parent lives.
        """
        return self.floats.reshape(-1).take(self._source[:active]) + self._gate[:active]

    def joined(self, utterances: np.ndarray) -> np.ndarray:
        """Returns the rows of some utterances whose parents live, as flat indices into [utterances, rows]."""
        return np.flatnonzero(self._gate[utterances] == 0.0)

    def rows_of(self, prefixes: np.ndarray) -> np.ndarray:
        """Returns a row in which each prefix lives (within its utterance), or -1; `prefixes` may hold -1."""
        found: np.ndarray = self._row_of[prefixes]
        return found

    def replace(self, who: np.ndarray, stays: np.ndarray, at: np.ndarray, ints: np.ndarray, floats: np.ndarray) -> None:
        """Empties rows of some utterances, and writes new hypotheses into free ones.

        Args:
            who: the utterances, int64 [n].
            stays: which of their rows stay, bool [n, rows].
            at: of each new hypothesis, the index of its utterance in `who`, ascending, int64 [m].
            ints: of the new hypotheses, [12, m], with the parent's prefix in PARENT.
            floats: [7, m].
        """
        many = np.bincount(at, minlength=len(who))
        free = np.flatnonzero(~stays)
        utterance = free // self.capacity
        free_counts = np.bincount(utterance, minlength=len(who))
        needed = int((many - free_counts).max())
        if needed > 0:
            before = self.capacity
            self.grow(before + needed)
            added = np.zeros((len(who), self.capacity - before), dtype=bool)
            self.replace(who, np.concatenate([stays, added], axis=1), at, ints, floats)
            return
        # The first free rows of each utterance are for its new hypotheses.
        starts = np.cumsum(free_counts) - free_counts - (np.cumsum(many) - many)
        gone = free + (who * self.capacity)[utterance] - utterance * self.capacity
        places = gone[starts[at] + np.arange(len(at))]
        all_ints, all_floats = self.ints.reshape(12, -1), self.floats.reshape(7, -1)
        self._row_of[all_ints[PREFIX, gone]] = -1
        all_ints[PREFIX, gone] = all_ints[PARENT, gone] = -1
        all_floats[: MASS + 1, gone] = -np.inf
        ints[PREFIX] = self.prefixes.number(ints[PARENT], ints[LAST])
        if len(self._row_of) <= len(self.prefixes.parents):
            more = len(self.prefixes.parents) + 1 - len(self._row_of)
            self._row_of = np.concatenate([self._row_of, np.full(more, -1, dtype=np.int64)])
        all_ints[:, places] = ints
        all_floats[:, places] = floats
        self._row_of[ints[PREFIX]] = places % self.capacity
        if self._words:
            self._find_again()
        self.link(who)

    def _find_again(self) -> None:
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
        self._find_again()
        self._limit = max(TREE_LIMIT, 2 * max(self.prefixes.size, self.histories.size))
