"""The automaton of a lexicon: which tokens continue a word, and which words are complete.

A state is a node of the trie of spellings, numbered from the root 0. Where the same tokens and words can be divided in
several ways, a hypothesis is at several nodes at once; such a set is a state as well, made when it first occurs.
"""

from __future__ import annotations

import threading

import numpy as np

from workbench.decoding.ctc_beam.lexicon import Lexicon
from workbench.decoding.ctc_beam.lexicon_trie import Trie, trie_of

DENSE = 1 << 22  # entries of a table of all arcs that is still small


class LexiconAutomaton:
    """Walks many hypotheses through a lexicon at once. Several threads may use it.

    Args:
        lexicon: the words.
        vocabulary: number of tokens.
        scores: the largest look-ahead of each word, float64 [words]; None for no look-ahead.
    """

    def __init__(self, lexicon: Lexicon, vocabulary: int, scores: np.ndarray | None = None):
        self._vocabulary = vocabulary
        trie = trie_of(lexicon, vocabulary)
        self._nodes = nodes = trie.nodes
        self._keys = keys = trie.keys
        self._targets = trie.targets
        self._arc_tokens = self._keys % vocabulary
        self._arc_starts = np.searchsorted(self._keys, np.arange(nodes) * vocabulary)
        self._arc_counts = np.bincount(keys // vocabulary, minlength=nodes)
        self._table: np.ndarray | None = None
        if nodes * vocabulary <= DENSE:
            self._table = np.full(nodes * vocabulary, -1, dtype=np.int32)
            self._table[self._keys] = self._targets
        self._word_counts = counts = np.bincount(trie.ends, minlength=nodes)
        self._word_starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self._words = trie.words
        has_arcs = np.zeros(nodes, dtype=bool)
        has_arcs[keys // vocabulary] = True
        # The same state without the nodes at which no word goes on; -1 if none is left.
        self._without_leaves = np.where(has_arcs, np.arange(nodes), -1)
        self.complete = np.zeros(nodes, dtype=bool)  # whether all words are complete: the state holds the root
        self.complete[0] = True
        self.look_ahead = _look_ahead(trie, scores) if scores is not None else np.zeros(nodes)
        # The look-ahead after each arc. Where it completes a word, that word's own score counts, which is at most 0.
        targets_without_leaves = self._without_leaves[self._targets]
        self._arc_look_ahead = np.where(targets_without_leaves >= 0, self.look_ahead[targets_without_leaves], -np.inf)
        self._arc_look_ahead[counts[self._targets] > 0] = 0.0
        # The same for a word's first token; -inf for a token with which no word begins.
        self.first_look_ahead = np.full(vocabulary, -np.inf)
        root_arcs = slice(self._arc_counts[0])
        self.first_look_ahead[self._arc_tokens[root_arcs]] = self._arc_look_ahead[root_arcs]
        # Whether tokens alone decide the words: each either goes on with a word or completes one, never both.
        self.is_unambiguous = bool((counts + has_arcs <= 1).all())
        # For each state: the largest look-ahead after an arc that completes no word; whether an arc completes one.
        from_states, completing = self._keys // vocabulary, counts[self._targets] > 0
        self.best_inside = np.full(nodes, -np.inf)
        np.maximum.at(self.best_inside, from_states[~completing], self._arc_look_ahead[~completing])
        self.completes = np.zeros(nodes, dtype=bool)
        self.completes[from_states[completing]] = True
        self._lock = threading.RLock()  # held while sets are made
        self._sets: list[tuple[int, ...]] = []
        self._set_states: dict[tuple[int, ...], int] = {}
        self._set_steps: dict[tuple[int, int], int] = {}

    def step(self, states: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Returns the states int64 [n] after one more token each; -1 if no word continues with it."""
        keys = states * self._vocabulary + tokens
        if not self._sets:
            return self._arc(keys)
        is_single = states < self._nodes
        result = self._arc(np.where(is_single, keys, 0))
        with self._lock:
            for index in np.flatnonzero(~is_single).tolist():
                result[index] = self._set_step(int(states[index]), int(tokens[index]))
        return result

    def _arc(self, keys: np.ndarray) -> np.ndarray:
        if self._table is not None:
            return self._table[keys].astype(np.int64)
        indices = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[indices] == keys, self._targets[indices], -1)

    def _set_step(self, state: int, token: int) -> int:
        if (state, token) not in self._set_steps:
            members = np.array(self._sets[state - self._nodes])
            reached = self._arc(members * self._vocabulary + token)
            self._set_steps[state, token] = self._state(set(reached[reached >= 0].tolist()))
        return self._set_steps[state, token]

    def _state(self, members: set[int]) -> int:
        """Returns the state that is at all of these nodes."""
        key = tuple(sorted(members))
        if len(key) < 2:
            return key[0] if key else -1
        if key not in self._set_states:
            self._set_states[key] = state = self._nodes + len(self._sets)
            self._sets.append(key)
            nodes = np.array(key)
            words = sorted({int(word) for node in key for word in self._words_at(node)})
            self._without_leaves = np.append(self._without_leaves, state)
            self.complete = np.append(self.complete, 0 in members)
            self.look_ahead = np.append(self.look_ahead, self.look_ahead[nodes].max())
            self._word_starts = np.append(self._word_starts, len(self._words))
            self._word_counts = np.append(self._word_counts, len(words))
            self._words = np.append(self._words, np.array(words, dtype=np.int64))
            next_tokens = sorted({int(token) for node in key for token in self._tokens_at(node)})
            self._arc_starts = np.append(self._arc_starts, len(self._arc_tokens))
            self._arc_counts = np.append(self._arc_counts, len(next_tokens))
            self._arc_tokens = np.append(self._arc_tokens, np.array(next_tokens, dtype=np.int64))
            self._arc_look_ahead = np.append(self._arc_look_ahead, np.zeros(len(next_tokens)))
            unfinished_nodes = self._without_leaves[nodes]
            self._without_leaves[state] = self._state(set(unfinished_nodes[unfinished_nodes >= 0].tolist()))
        return self._set_states[key]

    def _words_at(self, node: int) -> np.ndarray:
        start = self._word_starts[node]
        return self._words[start : start + self._word_counts[node]]

    def _tokens_at(self, node: int) -> np.ndarray:
        start = self._arc_starts[node]
        return self._arc_tokens[start : start + self._arc_counts[node]]

    def tokens(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the tokens that may follow some states int64 [n], as three arrays [m]: the state's position in
        `states`, the token, and the most that its look-ahead or its word adds.
        """
        positions, offsets = _ragged(self._arc_counts[states])
        arcs = self._arc_starts[states][positions] + offsets
        return positions, self._arc_tokens[arcs], self._arc_look_ahead[arcs]

    def unfinished(self, states: np.ndarray) -> np.ndarray:
        """Returns the states inside of words, int64 [n]: without the nodes at which no word goes on; -1 without any."""
        states_inside: np.ndarray = self._without_leaves[states]
        return states_inside

    def words(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the words that are complete in some states int64 [n], as two arrays int64 [m]: the state's position
        in `states`, and the word.
        """
        positions, offsets = _ragged(self._word_counts[states])
        return positions, self._words[self._word_starts[states][positions] + offsets]

    def with_root(self, states: np.ndarray) -> np.ndarray:
        """Returns the states that are at the root as well, int64 [n]."""
        with self._lock:
            return np.array([self._state({0, *self._members(state)}) for state in states.tolist()], dtype=np.int64)

    def _members(self, state: int) -> tuple[int, ...]:
        return (state,) if state < self._nodes else self._sets[state - self._nodes]


def _ragged(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the row of each element, and its position in the row, for rows of these lengths."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)


def _look_ahead(trie: Trie, scores: np.ndarray) -> np.ndarray:
    """Returns for each node the best score of the words that continue from it; 0 for the root."""
    best = np.full(trie.nodes, -np.inf)  # of the words that end at a node or continue from it
    np.maximum.at(best, trie.ends, scores[trie.words])
    ahead = np.full(trie.nodes, -np.inf)
    for level in reversed(trie.levels):
        parents = trie.parents[level]
        np.maximum.at(ahead, parents, best[level])
        best[parents] = np.maximum(best[parents], ahead[parents])
    ahead[0] = 0.0
    return ahead
