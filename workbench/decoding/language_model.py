"""What a beam search needs of a language model, whether its symbols are tokens or words.

An n-gram model and a neural one look the same from here: a state is an integer that stands for a history. This file
knows no file format and no network.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np


class LanguageModel(Protocol):
    """The natural log-probability of symbols after a history.

    The caller has given the model its list of symbols, and names each of them by its index in that list. A symbol that
    the model does not know counts as its unknown word, in the history too.
    """

    @property
    def start(self) -> int:
        """The state at the beginning of an utterance, after the start of the sentence."""
        ...

    def advance(self, states: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ln P(symbol | state) float64 [n], and the states int64 [n] that follow.

        Equal histories have equal states. Different histories may share a state if the model cannot tell them apart.
        The sum over a history is ln P of its symbols. A single value may be above 0 where a neural model's tokenizer
        joins symbols.

        Args:
            states: int64 [n].
            symbols: int64 [n].
        """
        ...

    def final(self, states: np.ndarray) -> np.ndarray:
        """Returns ln P(end of the sentence | state) float64 [n]."""
        ...


@runtime_checkable
class HasUnigrams(Protocol):
    """A language model with unigram probabilities. A search uses them to look ahead."""

    @property
    def unigrams(self) -> np.ndarray:
        """ln P(symbol) of each symbol, float64 [symbols]."""
        ...


@runtime_checkable
class HasUpperBounds(Protocol):
    """A language model with an upper bound for the next symbol. A search skips what cannot reach its beam."""

    def upper_bounds(self, states: np.ndarray) -> np.ndarray:
        """Returns for each state a bound float64 [n]: no symbol has a larger ln P(symbol | state)."""
        ...
