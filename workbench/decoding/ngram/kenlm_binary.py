"""KenLM's binary models, read by the package `kenlm`, as the language model of a beam search.

Heafield, "KenLM: faster and smaller language model queries", 2011. The package answers one question at a time in
float32; its answers are kept, so that a pair of state and symbol is seldom asked twice.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput, Unavailable
from workbench.decoding.ngram.automaton import LN10
from workbench.decoding.ngram.tables import END, notes_on_symbols
from workbench.formats.text_files import check_stored

MAGIC = b"mmap lm http://kheafield.com/code"
"""The bytes at the beginning of KenLM's binary files."""
MAX_CACHED = 1 << 20  # answers


def is_kenlm_binary(path: Path) -> bool:
    """Returns whether a file is a binary model of KenLM; False for a file that cannot be read, and for a pipe."""
    try:
        check_stored(path)
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (BadInput, OSError, ValueError):  # a name with a null byte is none
        return False


class KenlmModel:
    """A `LanguageModel` of a binary file of KenLM, for a list of symbols. Several threads may use it."""

    def __init__(self, path: Path, symbols: Sequence[str]):
        """Opens the file.

        Args:
            symbols: the names of the symbols.

        Raises `Unavailable` without the package, `BadInput` for a damaged file.
        """
        try:
            kenlm: Any = importlib.import_module("kenlm")
        except ImportError as error:
            raise Unavailable(
                f"{path.name} is a binary model of KenLM, and the package kenlm is not installed; run: "
                "pip install kenlm, or give the model as ARPA"
            ) from error
        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        try:
            self._model: Any = kenlm.Model(str(path), config)
        except (OSError, RuntimeError) as error:
            raise BadInput(
                f"{path.name} begins as a binary model of KenLM and cannot be read on; it is cut off, damaged, or of "
                "another version of KenLM"
            ) from error
        self.source = path.name
        self.order: int = self._model.order
        self.notes = notes_on_symbols(path.name, symbols, self._model)
        self._new_state: Any = kenlm.State
        self._symbols = list(symbols)
        self._lock = threading.Lock()
        self._states: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._cache: dict[tuple[int, int], tuple[float, int]] = {}
        self._finals: dict[int, float] = {}
        beginning = kenlm.State()
        self._model.BeginSentenceWrite(beginning)
        self._start = self._number(beginning)

    @property
    def start(self) -> int:
        """The state after the start of a sentence."""
        return self._start

    @cached_property
    def unigrams(self) -> np.ndarray:
        """ln P(symbol) of each symbol after no history, float64 [symbols]."""
        nothing = self._new_state()
        self._model.NullContextWrite(nothing)
        log10 = [self._model.BaseScore(nothing, symbol, self._new_state()) for symbol in self._symbols]
        return np.array(log10, np.float64) * LN10

    def advance(self, states: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ln P(symbol | state) float64 [n], and the states int64 [n] that follow.

        Args:
            states: int64 [n].
            symbols: int64 [n], indices into the list of symbols.
        """
        with self._lock:
            results = [self._advance(*pair) for pair in zip(states.tolist(), symbols.tolist(), strict=True)]
        ln = np.array([each[0] for each in results], np.float64)
        return ln, np.array([each[1] for each in results], np.int64)

    def final(self, states: np.ndarray) -> np.ndarray:
        """Returns ln P(end of the sentence | state) float64 [n]."""
        return np.array([self._final(state) for state in states.tolist()], np.float64)

    def _advance(self, state: int, symbol: int) -> tuple[float, int]:
        if (state, symbol) not in self._cache:
            if len(self._cache) == MAX_CACHED:
                self._cache.clear()
            next_state = self._new_state()
            log10 = self._model.BaseScore(self._states[state], self._symbols[symbol], next_state)
            self._cache[state, symbol] = log10 * LN10, self._number(next_state)
        return self._cache[state, symbol]

    def _final(self, state: int) -> float:
        if state not in self._finals:
            self._finals[state] = self._model.BaseScore(self._states[state], END, self._new_state()) * LN10
        return self._finals[state]

    def _number(self, state: Any) -> int:
        """Returns the number of a state of KenLM; a new one gets the next."""
        if state not in self._numbers:
            self._numbers[state] = len(self._states)
            self._states.append(state)
        return self._numbers[state]
