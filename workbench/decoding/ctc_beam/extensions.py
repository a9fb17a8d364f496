"""New hypotheses of a frame: old ones extended by a token.

A new hypothesis is left out early if its acoustics and the most that language may add cannot reach the beam. So the
language models are asked for few, and the result is the same as if they were asked for all. (A neural model of words
may add a little more than its share, see `neural.py`; then a full beam may miss what it would have kept.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.decoding.ctc_beam.candidates import Extensions, Stays, among
from workbench.decoding.ctc_beam.knowledge import Columns, Knowledge
from workbench.decoding.ctc_beam.pairs import likely_pairs
from workbench.decoding.ctc_beam.rows import (
    BLANK_MASS,
    EARNED,
    HISTORY,
    LANGUAGE,
    LAST,
    LENGTH,
    MASS,
    NEURAL_LM,
    NEURAL_STATE,
    PARENT,
    PHRASE,
    PREFIX,
    SPELLING,
    TOKEN_LM,
    TOKEN_STATE,
    WORD_LM,
    WORD_STATE,
    WORDS,
    Rows,
)
from workbench.decoding.ctc_beam.selection import LOWEST

BREADTH, BREADTH_ALONE = 2, 3
"""Times the beam's size: the best pairs of hypothesis and token by acoustics, of which new hypotheses are made.

The second is for a search without language, which then finds the best new hypotheses always: of the best pairs, at most
`size` lead to hypotheses that live already, and at most `size` repeat a token and have a lower score than it seems.
Where the beam holds everything, there are not even 2 x size pairs, so none is left out.
"""
LEAST_PAIRS = 128
"""The least number of these pairs: in a narrow beam, language may still choose among many tokens."""


@dataclass(frozen=True)
class Frame:
    """A frame for the active utterances: the beams before it, and what can be said before anything is extended."""

    rows: Rows
    stays: Stays
    log_probs: np.ndarray  # float64 [utterances, vocabulary]
    floor: np.ndarray  # float64 [utterances]: scores that new hypotheses must reach
    allowed: np.ndarray  # bool [utterances, vocabulary] or [vocabulary]: tokens that may be appended
    ints: np.ndarray  # of the rows, [columns, utterances x rows]
    floats: np.ndarray
    cut: np.ndarray  # float64 [utterances]: the floor without the most that language may add
    language: np.ndarray  # float64 [utterances x rows]: what the parents bring, without look-ahead

    @property
    def capacity(self) -> int:
        """Rows of an utterance."""
        return self.rows.capacity


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
        judged = knowledge.token_lm is not None or knowledge.spelling is not None or knowledge.phrases is not None
        self._most = max((BREADTH if judged else BREADTH_ALONE) * size, LEAST_PAIRS)
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
        if knowledge.spelling is not None:
            self._ints += [WORDS, HISTORY]

    def extend(
        self, rows: Rows, stays: Stays, log_probs: np.ndarray, floor: np.ndarray, allowed: np.ndarray
    ) -> Extensions:
        """Returns the new hypotheses that may reach the beam, by utterance.

        Args:
            rows: the beams before this frame.
            stays: the same rows if they gain no token.
            log_probs: of this frame, float64 [utterances, vocabulary], for the first utterances of the beams.
            floor: the scores that new hypotheses must reach, float64 [utterances].
            allowed: tokens that may be appended, bool [utterances, vocabulary] or [vocabulary].
        """
        used = len(log_probs) * rows.capacity
        ints = rows.ints.reshape(len(rows.ints), -1)[:, :used]
        floats = rows.floats.reshape(len(rows.floats), -1)[:, :used]
        cut = np.maximum(floor - self._knowledge.gain, LOWEST)
        language = floats[LANGUAGE] - self._knowledge.ahead(ints[SPELLING])
        return self._extend(Frame(rows, stays, log_probs, floor, allowed, ints, floats, cut, language))

    def _extend(self, frame: Frame) -> Extensions:
        base = (frame.floats[MASS] + frame.language).reshape(len(frame.log_probs), -1)
        pairs = likely_pairs(base, frame.log_probs, frame.cut, frame.allowed, self._most)
        parents, tokens, mass = self._fresh(frame, *pairs)
        ints, floats = self._columns(frame, parents)
        self._knowledge.read_token(ints, floats, tokens)
        floats[LANGUAGE] = self._knowledge.language(ints, floats)
        never, none = np.full(len(parents), -np.inf), np.full(len(parents), -1)
        return Extensions(parents, tokens, never, mass, mass, ints, floats, none, mass + floats[LANGUAGE])

    def _fresh(
        self, frame: Frame, parents: np.ndarray, tokens: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns those pairs whose prefix does not live yet and may reach the beam, with the masses they give it."""
        ints, floats = frame.ints, frame.floats
        utterances = parents // frame.capacity
        mass = np.where(ints[LAST][parents] == tokens, floats[BLANK_MASS][parents], floats[MASS][parents])
        mass = mass + frame.log_probs[utterances, tokens]
        fresh = (mass + frame.language[parents] >= frame.cut[utterances]) & (mass > -np.inf)
        joined = frame.stays.joined
        known = np.sort(ints[PARENT][joined] * self._vocabulary + ints[LAST][joined])
        fresh &= ~among(ints[PREFIX][parents] * self._vocabulary + tokens, known)
        return parents[fresh], tokens[fresh], mass[fresh]

    def _columns(self, frame: Frame, parents: np.ndarray) -> tuple[Columns, Columns]:
        """Returns the columns that may change, as the parents have them."""
        ints: Columns = {name: frame.ints[name][parents] for name in self._ints}
        floats: Columns = {name: frame.floats[name][parents] for name in self._floats}
        return ints, floats
