"""A neural language model over words: the score of a word is what it adds to ln P of the text so far.

The definition is of whole texts: the words joined by blanks, tokenised, ln P of all tokens and of the end. ln P(word |
words before) is the difference of two such texts without their ends. So the sum over a hypothesis is exactly ln P of
its text, also where a tokenizer joins tokens of neighbouring words; there, a difference may be above 0.

This file knows no network: a session's `score_texts` computes the texts, all that are missing in one call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from workbench.session.values import TextScore

START = 0  # the state of the empty history
MOST = 1 << 16  # histories whose scores are remembered


class ScoreTexts(Protocol):
    """Returns the scores of texts (see `workbench.session.protocols.ScoresTexts.score_texts`)."""

    def __call__(self, texts: Sequence[str], *, end: bool = True) -> Sequence[TextScore]: ...


class NeuralModel:
    """A `workbench.decoding.language_model.LanguageModel` whose symbols are words; a state is a history of words.

    Args:
        score_texts: of an open session. Its errors are raised as they are.
        words: the text of each symbol.
        most: the number of histories whose scores are remembered; others are computed again when they are needed.
    """

    start = START

    def __init__(self, score_texts: ScoreTexts, words: Sequence[str], most: int = MOST):
        self._score_texts = score_texts
        self._words = words
        self._most = most
        self._histories: dict[int, tuple[int, int]] = {}  # the history before the last word, and that word
        self._states: dict[tuple[int, int], int] = {}  # the other way round
        self._next = START + 1
        self._sums: OrderedDict[int, float] = OrderedDict()  # ln P of a history's text, without its end
        self._ends: OrderedDict[int, float] = OrderedDict()  # ln P of the end after it
        self.calls = 0  # of `score_texts`
        self.sequences = 0  # texts in these calls
        self.tokens = 0  # of these texts

    def advance(self, states: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `LanguageModel.advance`."""
        before, words = np.asarray(states).tolist(), np.asarray(symbols).tolist()
        after = [self._state(*pair) for pair in zip(before, words, strict=True)]
        sums = self._sums_of([*before, *after])
        found = np.array([_difference(sums[one], sums[other]) for one, other in zip(before, after)], dtype=np.float64)
        return found, np.array(after, dtype=np.int64)

    def final(self, states: np.ndarray) -> np.ndarray:
        """See `LanguageModel.final`."""
        wanted = np.asarray(states).tolist()
        known = {state: self._ends[state] for state in wanted if state in self._ends}
        missing = [state for state in dict.fromkeys(wanted) if state not in known]
        for state, score in self._scored(missing, end=True).items():
            known[state] = float(score.end or 0.0)
        self._remember(self._ends, known)
        return np.array([known[state] for state in wanted], dtype=np.float64)

    def words_of(self, state: int) -> list[str]:
        """Returns the words of a history."""
        found = []
        while state != START:
            state, word = self._histories[state]
            found.append(self._words[word])
        return found[::-1]

    def keep(self, states: Iterable[int]) -> None:
        """Forgets all histories that these states do not come from; no other state may be used from then on."""
        kept = set[int]()
        for state in map(int, states):
            while state != START and state not in kept:
                kept.add(state)
                state = self._histories[state][0]
        self._histories = {state: pair for state, pair in self._histories.items() if state in kept}
        self._states = {pair: state for state, pair in self._histories.items()}
        for memory in (self._sums, self._ends):
            for state in [state for state in memory if state != START and state not in kept]:
                del memory[state]

    def _state(self, before: int, word: int) -> int:
        """Returns the state of a history with one more word."""
        found = self._states.get((before, word))
        if found is None:
            if not 0 <= word < len(self._words):
                raise IndexError(f"the symbol is {word}; expected 0 to {len(self._words) - 1}")
            found, self._next = self._next, self._next + 1
            self._states[before, word] = found
            self._histories[found] = before, word
        return found

    def _sums_of(self, states: Sequence[int]) -> Mapping[int, float]:
        """Returns ln P of the texts of histories, without their ends."""
        known = {state: self._sums[state] for state in states if state in self._sums}
        known[START] = 0.0
        missing = [state for state in dict.fromkeys(states) if state not in known]
        for state, score in self._scored(missing, end=False).items():
            known[state] = score.total
        self._remember(self._sums, known)
        return known

    def _scored(self, states: Sequence[int], end: bool) -> Mapping[int, TextScore]:
        """Returns the scores of histories, by one call for all; equal texts are sent once."""
        if not states:
            return {}
        texts = {state: " ".join(self.words_of(state)) for state in states}
        asked = list(dict.fromkeys(texts.values()))
        found = dict(zip(asked, self._score_texts(asked, end=end), strict=True))
        self.calls += 1
        self.sequences += len(asked)
        self.tokens += sum(len(score.ids) for score in found.values())
        return {state: found[text] for state, text in texts.items()}

    def _remember(self, memory: OrderedDict[int, float], known: Mapping[int, float]) -> None:
        """Remembers scores, and forgets those that were not used for longest where there are too many."""
        for state, value in known.items():
            memory[state] = value
            memory.move_to_end(state)
        while len(memory) > self._most:
            memory.popitem(last=False)


def _difference(before: float, after: float) -> float:
    """Returns what a word adds; minus infinity stays so, whatever comes after."""
    return before if np.isneginf(before) else after - before
