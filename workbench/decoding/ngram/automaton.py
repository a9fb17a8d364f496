"""An n-gram model as an automaton: states and words are integers, and thousands of pairs advance in one call.

The definition (Katz, "Estimation of probabilities from sparse data", 1987), for a word w after the words h:

    P(w | h) = p(h w)                                          if the model lists the n-gram h w
             = backoff(h) * P(w | h without its first word)    if not; backoff(h) is 1 where none is listed

Pruning may have removed `h`, or the end of an n-gram, from the model's list.

A state is a *context*: a history that differs from its shorter endings, because a longer n-gram begins with it or
because it has a back-off weight. Any history has the state of its longest ending that is a context. The beginnings of a
context are contexts, so a state is enough to find the next one. This file knows no names of words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.decoding.ngram.key_table import KeyTable
from workbench.decoding.ngram.tables import Ngrams

LN10 = float(np.log(10.0))
ROOT = 0
"""The state of the empty history."""
DENSE = 4 << 20
"""Up to this number of pairs of state and word, a table holds the result of each."""
BLOCK_SIZE = 1 << 16  # pairs of state and word that are looked up at once


class NgramAutomaton:
    """The states of an n-gram model, and what each word leads to."""

    def __init__(self, orders: Sequence[Ngrams], vocabulary: int, dense: int = DENSE):
        """Builds the automaton.

        Args:
            orders: the distinct n-grams of order 1, 2, ...; of order 1, one for each word.
            vocabulary: number of words.
            dense: number of pairs of state and word up to which there is a table of all pairs.
        """
        self._vocabulary = vocabulary
        entries, contexts, self._levels = _find_contexts(orders, vocabulary)
        self._contexts = contexts
        self._backoff = np.zeros(len(contexts) + 1)
        for keys, ngrams in zip(entries, orders[:-1]):
            states, hit = self._context(keys)
            self._backoff[states[hit]] = ngrams.backoff[hit] * LN10
        self._link = self._make_links()
        self._table: KeyTable | None = None
        self._rows: tuple[np.ndarray, np.ndarray] | None = None
        self._keys, self._ln, self._next = self._make_arcs(entries, orders)
        if self.states * vocabulary <= dense:
            self._rows = self._make_rows()
        else:
            self._table = KeyTable(self._keys)

    @property
    def states(self) -> int:
        """The number of states."""
        return len(self._contexts) + 1

    @property
    def words(self) -> int:
        """The number of words."""
        return self._vocabulary

    def upper_bounds(self, mask: np.ndarray) -> np.ndarray:
        """Returns for each state a bound float64 [states]: no word of the mask has a larger ln P(word | state).

        It is the largest of the state's own arcs and of the bound of the state to which it backs off. (A word may have
        an arc and count there with its probability after the shorter history as well, so the bound may be too large.)

        Args:
            mask: bool [words].
        """
        ln = np.where(mask[self._keys % self._vocabulary], self._ln, -np.inf)
        starts = np.searchsorted(self._keys, np.arange(self.states + 1) * self._vocabulary)
        with_arcs = np.flatnonzero(np.diff(starts))
        bounds = np.full(self.states, -np.inf)
        bounds[with_arcs] = np.maximum.reduceat(ln, starts[with_arcs])
        for first, end in zip(self._levels, self._levels[1:]):  # a state backs off to a shorter history
            backed_off = self._backoff[first:end] + bounds[self._link[first:end]]
            np.maximum(bounds[first:end], backed_off, out=bounds[first:end])
        return bounds

    def advance(self, states: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ln P(word | state) float64 [n], and the states int64 [n] after the words.

        Args:
            states: int64 [n].
            words: int64 [n].
        """
        if self._rows is not None:
            places = states * self._vocabulary + words
            return self._rows[0].take(places), self._rows[1].take(places)
        if len(states) <= BLOCK_SIZE:
            return self._look_up(states, words)
        blocks = [slice(start, start + BLOCK_SIZE) for start in range(0, len(states), BLOCK_SIZE)]
        results = [self._look_up(states[block], words[block]) for block in blocks]
        return np.concatenate([ln for ln, _ in results]), np.concatenate([next_states for _, next_states in results])

    def _look_up(self, states: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Looks up the word's arc in each state and in all its back-off states at once, and takes the first arc."""
        chain = [states]
        while chain[-1].any():  # the root has an arc for every word
            chain.append(self._link[chain[-1]])
        places = self._find((np.stack(chain) * self._vocabulary + words).reshape(-1)).reshape(len(chain), -1)
        steps = (places >= 0).argmax(axis=0)
        ln = np.zeros(len(words))
        for step, states in enumerate(chain[:-1]):
            ln += np.where(steps > step, self._backoff[states], 0.0)
        places = places[steps, np.arange(len(words))]
        return ln + self._ln[places], self._next[places]

    def _find(self, keys: np.ndarray) -> np.ndarray:
        """Returns the places of arcs; -1 if a pair of state and word has no arc."""
        if self._table is not None:
            beyond_root = np.flatnonzero(keys >= self._vocabulary)
            places = keys.copy()  # the root's arcs come first, one for each word
            places[beyond_root] = self._table.find(keys[beyond_root])
            return places
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, places, -1)

    def _context(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the states of contexts, each given as its beginning's state and its last word, and which exist."""
        if not len(self._contexts):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
        places = np.minimum(np.searchsorted(self._contexts, keys), len(self._contexts) - 1)
        return places + 1, self._contexts[places] == keys

    def _longest_context(self, states: np.ndarray, words: np.ndarray, link: np.ndarray) -> np.ndarray:
        """Returns the state of the longest ending of (history of the state, word) that is a context."""
        result = np.full(len(states), ROOT)
        pending = np.arange(len(states))
        while len(pending):
            contexts, exists = self._context(states * self._vocabulary + words)
            result[pending[exists]] = contexts[exists]
            continues = ~exists & (states != ROOT)
            pending, states, words = pending[continues], link[states[continues]], words[continues]
        return result

    def _make_links(self) -> np.ndarray:
        """Returns for each state the state of its longest shorter ending, to which it backs off."""
        link = np.full(self.states, ROOT)
        for first, end in zip(self._levels[1:], self._levels[2:]):  # contexts of one word back off to the root
            beginnings, words = np.divmod(self._contexts[first - 1 : end - 1], self._vocabulary)
            link[first:end] = self._longest_context(link[beginnings], words, link)
        return link

    def _make_arcs(
        self, entries: Sequence[np.ndarray], orders: Sequence[Ngrams]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the sorted keys of the arcs, their ln P, and the states they lead to.

        There is an arc for each n-gram, and for each context that no n-gram lists.
        """
        keys = _distinct([*entries, self._contexts])
        ln = np.full(len(keys), np.nan)
        for entry_keys, ngrams in zip(entries, orders):
            ln[np.searchsorted(keys, entry_keys)] = ngrams.log10 * LN10
        states, words = np.divmod(keys, self._vocabulary)
        next_states = self._longest_context(states, words, self._link)
        missing = np.isnan(ln)
        if missing.any():
            self._keys, self._ln, self._next = keys[~missing], ln[~missing], next_states[~missing]
            states, words = states[missing], words[missing]
            ln[missing] = self._backoff[states] + self.advance(self._link[states], words)[0]
        return keys, ln, next_states

    def _make_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns ln P and the next state of all pairs, flat: a state's row is its link's row with its own arcs."""
        ln = np.empty((self.states, self._vocabulary))
        next_states = np.empty((self.states, self._vocabulary), np.int64)
        bounds = np.searchsorted(self._keys, np.array([0, 1, *self._levels[1:]]) * self._vocabulary)
        for level, (first, end) in enumerate(zip([0, *self._levels], self._levels)):
            if level:
                links = self._link[first:end]
                ln[first:end] = ln[links] + self._backoff[first:end, None]
                next_states[first:end] = next_states[links]
            arcs = slice(bounds[level], bounds[level + 1])
            ln.reshape(-1)[self._keys[arcs]] = self._ln[arcs]
            next_states.reshape(-1)[self._keys[arcs]] = self._next[arcs]
        return ln.reshape(-1), next_states.reshape(-1)


def _find_contexts(orders: Sequence[Ngrams], vocabulary: int) -> tuple[list[np.ndarray], np.ndarray, list[int]]:
    """Numbers the contexts by length, and contexts of one length by their key.

    A key is (state of all words but the last) * vocabulary + (last word). The keys of contexts rise with their states.

    Returns:
        the keys of the n-grams of each order; the keys of the states 1, 2, ...; the number of the first state of each
        length from 1, and the number of states.
    """
    previous_states = [np.zeros(len(ngrams), np.int64) for ngrams in orders]  # the state of the words read so far
    entries, contexts, levels = [], [], [1]
    for length in range(1, len(orders) + 1):
        keys = [
            state * vocabulary + ngrams.words[:, length - 1]
            for state, ngrams in zip(previous_states[length - 1 :], orders[length - 1 :])
        ]
        entries.append(keys[0])
        if length == len(orders):
            break
        keys_with_backoff = keys[0][orders[length - 1].backoff != 0]
        context_keys = _distinct([keys_with_backoff, *keys[1:]])
        previous_states[length:] = [np.searchsorted(context_keys, each) + levels[-1] for each in keys[1:]]
        contexts.append(context_keys)
        levels.append(levels[-1] + len(context_keys))
    return entries, np.concatenate([np.empty(0, np.int64), *contexts]), levels


def _distinct(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the distinct keys of all parts, ascending."""
    # Sorting is many times faster than the hashing of numpy.unique.
    keys = np.sort(np.concatenate(parts))
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys[first]
