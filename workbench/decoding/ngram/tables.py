"""The numbers of an n-gram model as a file lists them, before they become an automaton. Knows no file format."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

START, END = "<s>", "</s>"
UNKNOWNS = ("<unk>", "<UNK>")
"""The names of the unknown word; the first that a model has counts."""
MAX_ORDER = 20
"""Of a file that is read; models of letters have the longest n-grams."""
MAX_TRAINED_ORDER = 6
"""Of a model that is trained; KenLM reads no longer n-grams unless it is compiled for them."""


@dataclass(frozen=True)
class Ngrams:
    """All n-grams of one order. The logarithms are to the base 10, as in files."""

    words: np.ndarray  # int32 [count, order], indices into the words of the model
    log10: np.ndarray  # float64 [count], of the last word after the others
    backoff: np.ndarray  # float64 [count], 0 where there is none

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class NgramTables:
    """An n-gram model as its file lists it. A word's index is the index of its 1-gram."""

    words: tuple[str, ...]
    orders: tuple[Ngrams, ...]  # of order 1, 2, ...
    source: str  # the name of the file, for messages

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.orders)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The index of each word."""
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def unknown(self) -> int | None:
        """The index of the unknown word; None if the model has none."""
        return next((self.ids[name] for name in UNKNOWNS if name in self.ids), None)

    def find(self, names: Sequence[str]) -> np.ndarray:
        """Returns the indices of names int64 [n]; a name that the model lacks has the index of the unknown word.

        If the model has no unknown word either, the index is the number of words.
        """
        unknown = len(self.words) if self.unknown is None else self.unknown
        return np.fromiter((self.ids.get(name, unknown) for name in names), np.int64, len(names))


def notes_on_symbols(source: str, symbols: Sequence[str], known: Container[str]) -> tuple[str, ...]:
    """Returns a sentence for the user if a model knows none of the symbols that a search gives it; else nothing.

    Args:
        source: the name of the model's file.
        known: the words of the model.
    """
    ordinary = [symbol for symbol in symbols if symbol not in (START, END, *UNKNOWNS)]
    if not ordinary or any(symbol in known for symbol in ordinary):
        return ()
    return (
        f"{source} knows none of the {len(ordinary)} tokens or words that it scores here, such as "
        f"{ordinary[-1]!r:.40}: each of them counts as unknown",
    )
