"""An n-gram model as the language model of a beam search, for the search's list of symbols. Knows no file format."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from workbench.decoding.ngram.automaton import DENSE, ROOT, NgramAutomaton
from workbench.decoding.ngram.tables import END, START, Ngrams, NgramTables, notes_on_symbols

MISSING_UNKNOWN = -100.0
"""log10 of the probability of `<unk>` in a model that does not list it; KenLM uses the same."""


class NgramModel:
    """A `LanguageModel` of an n-gram model, for a list of symbols.

    A file may lack a word that the definition needs, or all symbols. `notes` says so in sentences for the user, and
    this counts:

    - without `<unk>`: an unknown symbol has the probability 10^-100, and the history after it is empty;
    - without `</s>`: the end of the sentence counts as any other unknown word;
    - without `<s>`: the first word follows the empty history.
    """

    def __init__(self, tables: NgramTables, symbols: Sequence[str], dense: int = DENSE):
        """Builds the automaton, without n-grams that have a word that is not a symbol.

        Args:
            symbols: the names of the symbols.
            dense: number of pairs of state and symbol up to which there is a table of all pairs.
        """
        self.source = tables.source
        self.order = tables.order
        self.notes = (*_notes(tables), *notes_on_symbols(tables.source, symbols, tables.ids))
        orders = tables.orders if tables.unknown is not None else _with_unknown(tables)
        end = tables.find([END])
        start = tables.ids.get(START)
        symbol_words = tables.find(symbols)
        used_words = np.unique(np.concatenate([symbol_words, end, [] if start is None else [start]]).astype(np.int64))
        self._words = np.searchsorted(used_words, symbol_words)
        self._automaton = NgramAutomaton(_restricted(orders, used_words), len(used_words), dense)
        self._start = ROOT
        if start is not None:
            first = np.searchsorted(used_words, [start])
            self._start = int(self._automaton.advance(np.array([ROOT]), first)[1][0])
        states = np.arange(self.states)
        self._final = self._automaton.advance(states, np.repeat(np.searchsorted(used_words, end), len(states)))[0]

    @property
    def states(self) -> int:
        """The number of states; a state is below it."""
        return self._automaton.states

    @property
    def start(self) -> int:
        """The state after the start of a sentence."""
        return self._start

    def advance(self, states: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ln P(symbol | state) float64 [n], and the states int64 [n] that follow.

        The logarithm of a probability of 0 is minus infinity.

        Args:
            states: int64 [n].
            symbols: int64 [n], indices into the list of symbols.
        """
        return self._automaton.advance(states, self._words[symbols])

    @property
    def unigrams(self) -> np.ndarray:
        """ln P(symbol) of each symbol after no history, float64 [symbols]."""
        return self._automaton.advance(np.full(len(self._words), ROOT), self._words)[0]

    @cached_property
    def _upper_bounds(self) -> np.ndarray:
        mask = np.zeros(self._automaton.words, dtype=bool)
        mask[self._words] = True
        return self._automaton.upper_bounds(mask)

    def upper_bounds(self, states: np.ndarray) -> np.ndarray:
        """Returns for each state a bound float64 [n]: no symbol has a larger ln P(symbol | state)."""
        bounds: np.ndarray = self._upper_bounds[states]
        return bounds

    def final(self, states: np.ndarray) -> np.ndarray:
        """Returns ln P(end of the sentence | state) float64 [n]."""
        return self._final[states]


def _notes(tables: NgramTables) -> list[str]:
    missing = {
        "<unk>": (tables.unknown is None, f"an unknown word has the probability 10^{MISSING_UNKNOWN:.0f}"),
        END: (END not in tables.ids, "the end of a sentence counts as an unknown word"),
        START: (START not in tables.ids, "the first word follows no history"),
    }
    return [
        f"{tables.source} has no {name}: {consequence}"
        for name, (is_missing, consequence) in missing.items()
        if is_missing
    ]


def _with_unknown(tables: NgramTables) -> tuple[Ngrams, ...]:
    """Returns the n-grams with one more word, the unknown one."""
    unigrams = tables.orders[0]
    extended = Ngrams(
        np.append(unigrams.words, np.array([[len(tables.words)]], np.int32), axis=0),
        np.append(unigrams.log10, MISSING_UNKNOWN),
        np.append(unigrams.backoff, 0.0),
    )
    return (extended, *tables.orders[1:])


def _restricted(orders: Sequence[Ngrams], used_words: np.ndarray) -> list[Ngrams]:
    """Returns the n-grams whose words are all in `used_words` (ascending); their words become places in it."""
    index_of = np.full(max(int(used_words[-1]), *(int(each.words.max(initial=0)) for each in orders)) + 1, -1, np.int64)
    index_of[used_words] = np.arange(len(used_words))
    restricted = []
    for ngrams in orders:
        words = index_of[ngrams.words]
        rows = np.flatnonzero((words >= 0).all(axis=1))
        restricted.append(Ngrams(words[rows], ngrams.log10[rows], ngrams.backoff[rows]))
    return restricted
