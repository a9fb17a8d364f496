"""A neural language model over words: the score of a word is the change of ln P of the text when the word is added.

The definition is of whole texts: the words joined by spaces, tokenised, ln P of all tokens and of the end. ln P(word |
words before) is the difference of two such texts without their ends. So the sum over a hypothesis is exactly ln P of
its text, also where a tokenizer joins tokens of neighbouring words; there, a difference may be above 0.

This file knows no network: a session's `score_texts` scores the texts. All missing texts go into one call.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from workbench.session.values import TextScore

Key = TypeVar("Key")
Value = TypeVar("Value")

START = 0  # the state of the empty history
MAX_HISTORIES = 1 << 16  # histories whose scores are remembered


class ScoreTexts(Protocol):
    """Returns the scores of texts (see `workbench.session.protocols.ScoresTexts.score_texts`)."""

    def __call__(self, texts: Sequence[str], *, end: bool = True) -> Sequence[TextScore]: ...


class NeuralModel:
    """A `workbench.decoding.language_model.LanguageModel` whose symbols are words; a state is a history of words.

    Equal histories have equal states as long as they are remembered. Several threads may use it.

    Args:
        score_texts: the method of an open session. Its errors pass through.
        words: the text of each symbol.
        capacity: the number of histories whose scores are remembered. Others are computed again when they are needed;
            16 bytes of each stay.
    """

    start = START

    def __init__(self, score_texts: ScoreTexts, words: Sequence[str], capacity: int = MAX_HISTORIES):
        self._score_texts = score_texts
        self._words = words
        self._capacity = capacity
        self._lock = threading.Lock()
        # For each state: the state before its last word, and that word. Never forgotten, as a search may come back.
        self._previous, self._last_words = array("q", [START]), array("q", [-1])
        self._states: OrderedDict[tuple[int, int], int] = OrderedDict()  # by the state before and the word
        self._sums: OrderedDict[int, float] = OrderedDict()  # ln P of a history's text, without its end
        self._ends: OrderedDict[int, float] = OrderedDict()  # ln P of the end after it
        self.calls = 0  # number of calls of `score_texts`
        self.sequences = 0  # number of texts in these calls
        self.tokens = 0  # number of tokens in these texts

    def advance(self, states: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `LanguageModel.advance`."""
        histories, words = np.asarray(states).tolist(), np.asarray(symbols).tolist()
        with self._lock:
            extended = [self._state(*pair) for pair in zip(histories, words, strict=True)]
            sums = self._sums_of([*histories, *extended])
        scores = np.array(
            [_difference(sums[start], sums[end]) for start, end in zip(histories, extended)], dtype=np.float64
        )
        return scores, np.array(extended, dtype=np.int64)

    def final(self, states: np.ndarray) -> np.ndarray:
        """See `LanguageModel.final`."""
        requested_states = np.asarray(states).tolist()
        with self._lock:
            ends = {state: self._ends[state] for state in requested_states if state in self._ends}
            missing = [state for state in dict.fromkeys(requested_states) if state not in ends]
            for state, score in self._scores_of(missing, end=True).items():
                ends[state] = float(score.end or 0.0)
            _remember(self._ends, ends, self._capacity)
        return np.array([ends[state] for state in requested_states], dtype=np.float64)

    def words_of(self, state: int) -> list[str]:
        """Returns the words of a history."""
        words = []
        while state != START:
            words.append(self._words[self._last_words[state]])
            state = self._previous[state]
        return words[::-1]

    def _state(self, history: int, word: int) -> int:
        """Returns the state of a history with one more word."""
        state = self._states.get((history, word))
        if state is None:
            if not 0 <= word < len(self._words):
                raise IndexError(f"the symbol is {word}; expected 0 to {len(self._words) - 1}")
            state = len(self._previous)
            self._previous.append(history)
            self._last_words.append(word)
        _remember(self._states, {(history, word): state}, self._capacity)
        return state

    def _sums_of(self, states: Sequence[int]) -> Mapping[int, float]:
        """Returns ln P of the texts of histories, without their ends."""
        sums = {state: self._sums[state] for state in states if state in self._sums}
        sums[START] = 0.0
        missing = [state for state in dict.fromkeys(states) if state not in sums]
        for state, score in self._scores_of(missing, end=False).items():
            sums[state] = score.total
        _remember(self._sums, sums, self._capacity)
        return sums

    def _scores_of(self, states: Sequence[int], end: bool) -> Mapping[int, TextScore]:
        """Returns the scores of histories, by one call for all; equal texts are sent once."""
        if not states:
            return {}
        texts = {state: " ".join(self.words_of(state)) for state in states}
        unique_texts = list(dict.fromkeys(texts.values()))
        scores = dict(zip(unique_texts, self._score_texts(unique_texts, end=end), strict=True))
        self.calls += 1
        self.sequences += len(unique_texts)
        self.tokens += sum(len(score.ids) for score in scores.values())
        return {state: scores[text] for state, text in texts.items()}


def _remember(memory: OrderedDict[Key, Value], values: Mapping[Key, Value], capacity: int) -> None:
    """Remembers values, and forgets those that were not used for longest where there are more than `capacity`."""
    for key, value in values.items():
        memory[key] = value
        memory.move_to_end(key)
    while len(memory) > capacity:
        memory.popitem(last=False)


def _difference(total_before: float, total_after: float) -> float:
    """Returns what a word adds; minus infinity stays so, whatever comes after."""
    return total_before if np.isneginf(total_before) else total_after - total_before
