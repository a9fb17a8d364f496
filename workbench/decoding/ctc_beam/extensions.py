"""New hypotheses of a frame: old ones extended by a token.

A new hypothesis is left out early if its acoustic score plus the most that language may add cannot reach the beam. So
the language models score only a few hypotheses, and the result is the same as if they scored all. (The difference that
a word adds to a neural model may be above 0, see `neural.py`; then a full beam may miss a hypothesis.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.decoding.ctc_beam.candidates import Extensions, UnextendedRows, is_among
from workbench.decoding.ctc_beam.knowledge import Columns, Knowledge
from workbench.decoding.ctc_beam.pairs import Pairs, likely_pairs
from workbench.decoding.ctc_beam.progress import Progress
from workbench.decoding.ctc_beam.rows import (
    BLANK_MASS,
    BOUND,
    EARNED,
    HISTORY,
    LANGUAGE,
    LAST,
    LENGTH,
    MASS,
    NEURAL_LM,
    NEURAL_STATE,
    PHRASE,
    PREFIX,
    TOKEN_LM,
    TOKEN_STATE,
    WORD_LM,
    WORD_STATE,
    WORDS,
    Rows,
)
from workbench.decoding.ctc_beam.selection import MIN_SCORE

BREADTH, BREADTH_WITHOUT_LANGUAGE = 2, 3
"""How many pairs of hypothesis and token are extended, as a multiple of the beam's size; the acoustically best are.

The second number is for a search without language. It is enough to always find the best new hypotheses: among the best
pairs, at most `size` lead to hypotheses that are in the beam already, and at most `size` repeat a token, so that their
real score is lower. If the beam holds everything, there are fewer than 2 x size pairs, so none is left out.
"""
MIN_PAIRS = 128
"""The least number of these pairs: in a narrow beam, language may still choose among many tokens."""


@dataclass(frozen=True)
class Frame:
    """The next frame of some utterances: the beams before it, and the values that their extension needs."""

    rows: Rows
    utterances: np.ndarray  # int64 [utterances]: the indices of the utterances in `rows`
    unextended: UnextendedRows  # their rows if they gain no token, [utterances, rows]
    base: np.ndarray  # float64 [utterances, rows]: their scores before the frame, without look-ahead
    log_probs: np.ndarray  # float64 [utterances, vocabulary]; -inf for tokens that may not be appended
    top: np.ndarray  # float64 [utterances]: the largest log-probability of a token
    floor: np.ndarray  # float64 [utterances]: scores that new hypotheses must reach
    cut: np.ndarray  # float64 [utterances]: the floor minus the most that language may add

    @property
    def capacity(self) -> int:
        """Rows of an utterance."""
        return self.rows.capacity

    def ints(self, column: int) -> np.ndarray:
        """Returns a column of the utterances' rows, flat, int64 [utterances x rows]."""
        return self.rows.ints[column].take(self.utterances, axis=0).ravel()

    def floats(self, column: int) -> np.ndarray:
        """Returns a column of the utterances' rows, flat, float64 [utterances x rows]."""
        return self.rows.floats[column].take(self.utterances, axis=0).ravel()

    def places(self, parents: np.ndarray, utterances: np.ndarray) -> np.ndarray:
        """Returns flat indices of the frame's rows, int64 [n], as flat indices of all rows.

        Args:
            utterances: the index of each row's utterance in the frame, int64 [n].
        """
        if len(self.utterances) == self.rows.utterances:
            return parents
        shift = (self.utterances - np.arange(len(self.utterances))) * self.capacity
        return parents + shift.take(utterances)


class Extender:
    """Makes the new hypotheses of each frame, without a lexicon.

    Args:
        vocabulary: number of tokens.
        knowledge: the parts of the score that language decides.
        size: hypotheses that live after a frame.
    """

    def __init__(self, vocabulary: int, knowledge: Knowledge, size: int):
        self._vocabulary = vocabulary
        self._knowledge = knowledge
        has_language_score = (
            knowledge.token_lm is not None or knowledge.automaton is not None or knowledge.phrases is not None
        )
        self._pair_limit = max((BREADTH if has_language_score else BREADTH_WITHOUT_LANGUAGE) * size, MIN_PAIRS)
        # The columns that a token or a word may change.
        self._ints, self._floats = [LENGTH], []
        if knowledge.phrases is not None:
            self._ints += [PHRASE, EARNED]
        for model, state, value in (
            (knowledge.token_lm, TOKEN_STATE, TOKEN_LM),
            (knowledge.word_lm, WORD_STATE, WORD_LM),
            (knowledge.neural_lm, NEURAL_STATE, NEURAL_LM),
        ):
            if model is not None:
                self._ints.append(state)
                self._floats.append(value)
        if knowledge.automaton is not None:
            self._ints += [WORDS, HISTORY]

    def cut(self, floor: np.ndarray) -> np.ndarray:
        """Returns the floors [utterances] minus the most that language may add."""
        return np.maximum(floor - self._knowledge.max_gain, MIN_SCORE)

    def quiet(self, rows: Rows, progress: Progress, unextended: UnextendedRows, floor: np.ndarray) -> np.ndarray:
        """Returns for each next frame whether no new hypothesis can reach the floor, bool [unfinished]."""
        if not self._knowledge.bounded:
            return np.zeros(len(floor), dtype=bool)
        best = (rows.floats[MASS, : progress.unfinished] + rows.floats[BOUND, : progress.unfinished]).max(axis=1)
        is_quiet: np.ndarray = best + progress.best_log_probs < floor
        return is_quiet

    def extend(self, frame: Frame) -> Extensions:
        """Returns the new hypotheses that may reach the beam, by utterance."""
        pairs = likely_pairs(frame.base, frame.log_probs, frame.cut, self._pair_limit)
        pairs, mass = self._new_pairs(frame, pairs)
        ints, floats = self._columns(frame.rows, pairs.parents)
        self._knowledge.read_token(ints, floats, pairs.tokens)
        floats[LANGUAGE] = self._knowledge.language_score(ints, floats)
        score = mass + floats[LANGUAGE]
        impossible, no_word = np.full(len(mass), -np.inf), np.full(len(mass), -1)
        extensions = Extensions(
            pairs.parents, pairs.utterances, pairs.tokens, impossible, mass, mass, ints, floats, no_word, score
        )
        return (
            extensions
            if (score >= frame.floor.take(pairs.utterances)).any()
            else extensions.take(np.empty(0, dtype=np.int64))
        )

    def _new_pairs(self, frame: Frame, pairs: Pairs) -> tuple[Pairs, np.ndarray]:
        """Returns the pairs whose prefix is not in the beam yet and may reach the floor, and the prefixes' masses.

        The parents are then flat indices of all rows.
        """
        rows, tokens = frame.rows, pairs.tokens
        parents = frame.places(pairs.parents, pairs.utterances)
        repeats_last = rows.ints[LAST].take(parents) == tokens
        mass = np.where(repeats_last, rows.floats[BLANK_MASS].take(parents), rows.floats[MASS].take(parents))
        mass += pairs.log_probs
        beam_arcs = np.sort(rows.arcs.take(frame.utterances, axis=0), axis=None)
        is_new = ~is_among(rows.arc(rows.ints[PREFIX].take(parents), tokens), beam_arcs)
        if self._knowledge.bounded:
            is_new &= mass + rows.floats[BOUND].take(parents) >= frame.floor.take(pairs.utterances)
        indices = is_new.nonzero()[0]
        pairs = Pairs(parents, tokens, pairs.utterances, pairs.log_probs)
        return pairs.take(indices), mass.take(indices)

    def _columns(self, rows: Rows, places: np.ndarray) -> tuple[Columns, Columns]:
        """Returns the columns that may change, with the parents' values."""
        ints: Columns = {name: rows.ints[name].take(places) for name in self._ints}
        floats: Columns = {name: rows.floats[name].take(places) for name in self._floats}
        return ints, floats
