"""The active hypotheses of a batch, as arrays: a row for each, in which it stays as long as it is active.

A row is a pair of a token prefix and, with a lexicon, the words so far. The rows of one prefix have equal acoustic
masses. This file stores and moves; it knows no scores.
"""

from __future__ import annotations

import sys

import numpy as np

from workbench.decoding.ctc_beam.trees import Tree

# Whole numbers of a row. States are those of the language models, the lexicon and the phrases.
PREFIX, PARENT, LAST, LENGTH, TOKEN_STATE, HISTORY, WORDS, LEXICON_STATE, WORD_STATE, NEURAL_STATE, PHRASE, EARNED = (
    range(12)
)
INTS = 12
# Natural logarithms: alignments that end in a blank, in the last token, both; then what does not depend on alignments.
# BOUND is the most that LANGUAGE may be after one more token.
BLANK_MASS, TOKEN_MASS, MASS, TOKEN_LM, WORD_LM, NEURAL_LM, LANGUAGE, BOUND = range(8)
FLOATS = 8

TREE_LIMIT = 1 << 17  # prefixes that may have numbers before those without active descendants are forgotten


class Rows:
    """The rows of some utterances: `ints` [INTS, utterances, rows] and `floats` [FLOATS, utterances, rows].

    An empty row has the prefix -1 and masses of -inf. The number of rows grows when more are needed.
    """

    def __init__(self, utterances: int, vocabulary: int, words: int):
        self.utterances, self._words = utterances, words
        self.ints = np.zeros((INTS, utterances, 1), dtype=np.int64)
        self._set_floats(np.zeros((FLOATS, utterances, 1)))
        self.prefixes = Tree(utterances, vocabulary)  # an empty prefix for each utterance
        self.histories = Tree(1, words)
        self.ints[PREFIX, :, 0] = np.arange(utterances)
        self.ints[[PARENT, LAST]] = -1
        self.floats[TOKEN_MASS] = -np.inf
        self.pruned = np.zeros(utterances, dtype=bool)  # whether the search may have dropped a hypothesis
        self._row_of = np.full(len(self.prefixes.parents) + 1, -1, dtype=np.int64)  # the last one is for prefix -1
        self._row_of[:utterances] = 0
        self._limit = TREE_LIMIT
        self._vocabulary = vocabulary
        self._source = np.zeros((utterances, 0), dtype=np.int64)
        self.arcs = self._source  # of each row, see `arc`, or -1 where no parent is active; int64 [utterances, rows]
        self.link(np.arange(utterances))

    @property
    def capacity(self) -> int:
        """Rows of an utterance."""
        return self.ints.shape[2]

    def _set_floats(self, floats: np.ndarray) -> None:
        """Sets the numbers of all rows. One more number, -inf, follows them in memory."""
        self._memory = np.append(floats, -np.inf)
        self.floats = self._memory[:-1].reshape(floats.shape)

    def grow(self, rows: int) -> None:
        """Makes room for at least so many rows of an utterance."""
        if rows > self.capacity:
            added_rows = max(rows, self.capacity * 9 // 8) - self.capacity
            ints = np.zeros((INTS, self.utterances, added_rows), dtype=np.int64)
            ints[[PREFIX, PARENT, LAST]] = -1
            self.ints = np.concatenate([self.ints, ints], axis=2)
            floats = np.full((FLOATS, self.utterances, added_rows), -np.inf)
            self._set_floats(np.concatenate([self.floats, floats], axis=2))
            self.link(np.arange(self.utterances))

    def link(self, utterances: np.ndarray) -> None:
        """Stores for each row which alignments of its parent its last token continues, and the arc between them.

        These are all alignments of the parent; if the parent ends with the same token, only those that end in a blank.
        `parent_mass` reads them. It must be called for the utterances whose rows have changed.
        """
        if self._source.shape[1] != self.capacity:
            self._source = np.full((self.utterances, self.capacity), -1, dtype=np.int64)
            self.arcs = self._source.copy()
        prefixes = self.ints[PARENT].take(utterances, axis=0)
        parents = self._row_of.take(prefixes)
        last = self.ints[LAST]
        has_no_parent = parents < 0
        places = (utterances * self.capacity)[:, None] + parents  # any row where no parent is active
        tokens = last.take(utterances, axis=0)
        arcs = self.arc(prefixes, tokens)
        arcs[has_no_parent] = -1
        self.arcs[utterances] = arcs
        places += np.where(last.take(places) == tokens, BLANK_MASS * last.size, MASS * last.size)
        places[has_no_parent] = -1
        self._source[utterances] = places

    def arc(self, prefixes: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Returns a number for each pair of a prefix and a token that extends it; all arrays have one shape, [...]."""
        return prefixes * self._vocabulary + tokens

    def parent_mass(self, unfinished: int) -> np.ndarray:
        """Returns the mass of each row's parent that the row's last token continues, float64 [unfinished, rows].

        It is -inf if the parent is not in the beam.
        """
        return self._memory.take(self._source[:unfinished])

    def joined(self, utterances: np.ndarray) -> np.ndarray:
        """Returns the rows of some utterances whose parents are active, as flat indices into [utterances, rows]."""
        return (self._source[utterances] >= 0).ravel().nonzero()[0]

    def rows_of(self, prefixes: np.ndarray) -> np.ndarray:
        """Returns for each prefix [n] a row of its utterance that holds it, int64 [n]; -1 for none, and for -1."""
        rows: np.ndarray = self._row_of[prefixes]
        return rows

    def replace(
        self, utterances: np.ndarray, is_kept: np.ndarray, owners: np.ndarray, ints: np.ndarray, floats: np.ndarray
    ) -> None:
        """Empties rows of some utterances, and writes new hypotheses into free ones.

        Args:
            utterances: the utterances, int64 [n].
            is_kept: which of their rows stay, bool [n, rows].
            owners: the index in `utterances` of each new hypothesis's utterance, ascending, int64 [m].
            ints: the whole numbers of the new hypotheses, [INTS, m], with the parent's prefix in PARENT.
            floats: their floating-point numbers, [FLOATS, m].
        """
        capacity = self.capacity
        free = (~is_kept).ravel().nonzero()[0]
        utterance = free // capacity
        new_counts, free_counts = (
            np.bincount(owners, minlength=len(utterances)),
            np.bincount(utterance, minlength=len(utterances)),
        )
        rows_needed = int((new_counts - free_counts).max())
        if rows_needed > 0:
            self.grow(capacity + rows_needed)
            added_rows = np.zeros((len(utterances), self.capacity - capacity), dtype=bool)
            self.replace(utterances, np.concatenate([is_kept, added_rows], axis=1), owners, ints, floats)
            return
        freed = free + ((utterances - np.arange(len(utterances))) * capacity).take(utterance)
        all_ints, all_floats = self.ints.reshape(INTS, -1), self.floats.reshape(FLOATS, -1)
        self._row_of[all_ints[PREFIX].take(freed)] = -1
        places = freed
        if len(free) > len(owners):
            # The first free rows of each utterance are for its new hypotheses.
            all_ints[PREFIX, freed] = all_ints[PARENT, freed] = -1
            all_floats[: MASS + 1, freed] = -np.inf
            starts = free_counts.cumsum() - free_counts - new_counts.cumsum() + new_counts
            places = freed.take(starts.take(owners) + np.arange(len(owners)))
        ints[PREFIX] = self.prefixes.number(ints[PARENT], ints[LAST])
        if len(self._row_of) <= len(self.prefixes.parents):
            missing = len(self.prefixes.parents) + 1 - len(self._row_of)
            self._row_of = np.concatenate([self._row_of, np.full(missing, -1, dtype=np.int64)])
        all_ints[:, places] = ints
        all_floats[:, places] = floats
        self._row_of[ints[PREFIX]] = places % capacity
        if self._words:
            self._update_row_index()
        self.link(utterances)

    def _update_row_index(self) -> None:
        """Finds a row of every active prefix again, because one of several rows of a prefix may have been dropped."""
        active = self.ints[PREFIX] >= 0
        self._row_of[self.ints[PREFIX][active]] = np.nonzero(active)[1]

    def remember(self) -> None:
        """Keeps all numbers of prefixes and histories, however many there will be."""
        self._limit = sys.maxsize

    def forget(self) -> None:
        """Forgets the prefixes and histories that no active hypothesis begins with, when there are many."""
        if max(self.prefixes.size, self.histories.size) < self._limit:
            return
        active = self.ints[PREFIX] >= 0
        self.prefixes, renamed = self.prefixes.keep(self.ints[PREFIX][active])
        renamed = np.append(renamed, -1)  # for -1, the parent of the empty prefix
        for column in (PREFIX, PARENT):
            self.ints[column][active] = renamed[self.ints[column][active]]
        self.histories, renamed = self.histories.keep(self.ints[HISTORY][active])
        self.ints[HISTORY][active] = renamed[self.ints[HISTORY][active]]
        self._row_of = np.full(len(self.prefixes.parents) + 1, -1, dtype=np.int64)
        self._update_row_index()
        self.link(np.arange(self.utterances))
        self._limit = max(TREE_LIMIT, 2 * max(self.prefixes.size, self.histories.size))
