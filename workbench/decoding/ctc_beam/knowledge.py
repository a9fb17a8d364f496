"""What a search knows besides the acoustics: language models, lexicon, phrases, bonuses, and their weights.

All of it depends on the tokens and words of a hypothesis alone, never on its alignments.
"""

from __future__ import annotations

import numpy as np

from workbench.decoding.ctc_beam.lexicon import Lexicon
from workbench.decoding.ctc_beam.lexicon_automaton import LexiconAutomaton
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.ctc_beam.phrases import PhraseCounter, Phrases
from workbench.decoding.ctc_beam.rows import (
    EARNED,
    LENGTH,
    LEXICON_STATE,
    NEURAL_LM,
    NEURAL_STATE,
    PHRASE,
    TOKEN_LM,
    TOKEN_STATE,
    WORD_LM,
    WORD_STATE,
    WORDS,
)
from workbench.decoding.language_model import HasUnigrams, HasUpperBounds, LanguageModel

MIN_EXPECTED = -50.0  # ln P: a word that never comes first may still be likely after another

Columns = dict[int, np.ndarray]  # of some hypotheses: a column's name in `rows.py`, and its values [n]


def weighed(weight: float, values: np.ndarray) -> np.ndarray:
    """Returns values of ln P times a weight, float64 [n]. Minus infinity stays so, also with a weight below 0."""
    weighted: np.ndarray = weight * values
    if weight < 0:
        weighted[np.isneginf(values)] = -np.inf
    return weighted


class Knowledge:
    """The parts of the score besides the acoustics. Models with a weight of 0 are left out.

    Args: as `CtcDecoder`'s.
    """

    def __init__(
        self,
        vocabulary: int,
        options: SearchOptions,
        token_lm: LanguageModel | None,
        lexicon: Lexicon | None,
        word_lm: LanguageModel | None,
        neural_lm: LanguageModel | None,
        phrases: Phrases | None,
    ):
        self.options, self.lexicon = options, lexicon
        self.token_lm = token_lm if options.alpha else None
        self.word_lm = word_lm if options.gamma else None
        self.neural_lm = neural_lm if options.gamma else None
        self.automaton = None if lexicon is None else LexiconAutomaton(lexicon, vocabulary, self._look_ahead())
        self.phrases: PhraseCounter | None = None
        if phrases is not None and options.boost_score:
            self.phrases = PhraseCounter(phrases, vocabulary if lexicon is None else len(lexicon.words))
            # While a phrase is unfinished, it has the credit that it may still earn; a penalty comes with the end.
            self._pending = self.phrases.depth if options.boost_score > 0 else self.phrases.at_end
        boost = max(options.boost_score, 0.0) if self.phrases else 0.0
        if lexicon is None:
            self.max_gain = options.beta + boost
        else:
            self.max_gain = options.beta + max(0.0, options.word_bonus + boost)
        if (options.alpha < 0 and self.token_lm) or (options.gamma < 0 and (self.word_lm or self.neural_lm)):
            self.max_gain = np.inf  # the most by which one more token raises the score, apart from the acoustics
        # Whether `upper_bound` knows a bound, also of the hypotheses that other words may give to the same tokens.
        self.bounded = bool(self.max_gain < np.inf) and (self.automaton is None or self.automaton.is_unambiguous)
        # Bounds for ln P of the next token or word, if the n-gram models have them.
        token_model: object = self.token_lm
        self._token_bounds = token_model.upper_bounds if isinstance(token_model, HasUpperBounds) else None
        word_model: object = self.word_lm
        self._word_bounds = word_model.upper_bounds if isinstance(word_model, HasUpperBounds) else None

    def _look_ahead(self) -> np.ndarray | None:
        """Returns the look-ahead score of each word, float64 [words]; None if no model has unigram probabilities."""
        model: object = self.word_lm
        if self.options.gamma < 0 or not isinstance(model, HasUnigrams):
            return None
        expected: np.ndarray = self.options.gamma * np.maximum(model.unigrams, MIN_EXPECTED)
        return expected

    def language_score(self, ints: Columns, floats: Columns) -> np.ndarray:
        """Returns the sum of all parts but the acoustics, float64 [n], with the credit for what is unfinished."""
        options = self.options
        total: np.ndarray = options.beta * ints[LENGTH]
        if self.token_lm is not None:
            total = total + floats[TOKEN_LM]
        if self.automaton is not None:
            total = total + options.word_bonus * ints[WORDS] + self.automaton.look_ahead[ints[LEXICON_STATE]]
        if self.word_lm is not None:
            total = total + floats[WORD_LM]
        if self.neural_lm is not None:
            total = total + floats[NEURAL_LM]
        if self.phrases is not None:
            total = total + self.boost(ints)
        return total

    def boost(self, ints: Columns) -> np.ndarray:
        """Returns the credit for phrases, float64 [n], with the credit for unfinished phrases."""
        boost: np.ndarray = self.options.boost_score * (ints[EARNED] + self._pending[ints[PHRASE]])
        return boost

    def upper_bound(self, ints: Columns, language_score: np.ndarray) -> np.ndarray:
        """Returns an upper bound of `language_score` after one more token, float64 [n].

        It is valid if `bounded` is true and, with a neural model, if no word adds more than 0.

        Args:
            ints: the whole numbers of some hypotheses.
            language_score: their present value of `language_score`.
        """
        options = self.options
        bound: np.ndarray = language_score + self.max_gain
        if self._token_bounds is not None:
            bound = bound + options.alpha * self._token_bounds(ints[TOKEN_STATE])
        if self.automaton is not None and self.bounded:
            states = ints[LEXICON_STATE]
            word: np.ndarray = np.where(self.automaton.completes[states], 0.0, -np.inf)
            if self._word_bounds is not None:
                word = word + options.gamma * self._word_bounds(ints[WORD_STATE])
            inside = self.automaton.best_inside[states] + (options.beta - self.max_gain)
            bound = bound - self.automaton.look_ahead[states] + np.maximum(inside, word)
        return bound

    def read_token(self, ints: Columns, floats: Columns, tokens: np.ndarray) -> None:
        """Adds one token to each of n hypotheses; changes their columns in place, without the neural model.

        Args:
            tokens: int64 [n].
        """
        ints[LENGTH] = ints[LENGTH] + 1
        if self.token_lm is not None:
            value, ints[TOKEN_STATE] = self.token_lm.advance(ints[TOKEN_STATE], tokens)
            floats[TOKEN_LM] = floats[TOKEN_LM] + weighed(self.options.alpha, value)
        if self.phrases is not None and self.automaton is None:
            self._read_phrase(ints, tokens)

    def read_word(self, ints: Columns, floats: Columns, words: np.ndarray) -> None:
        """Adds one word to each of n hypotheses as `read_token` adds a token; `words` is int64 [n]."""
        ints[WORDS] = ints[WORDS] + 1
        if self.word_lm is not None:
            value, ints[WORD_STATE] = self.word_lm.advance(ints[WORD_STATE], words)
            floats[WORD_LM] = floats[WORD_LM] + weighed(self.options.gamma, value)
        if self.phrases is not None:
            self._read_phrase(ints, words)

    def read_word_neural(self, ints: Columns, floats: Columns, words: np.ndarray) -> None:
        """Adds one word to each of n hypotheses in the columns of the neural model; `words` is int64 [n].

        This takes the most time, so it comes last.
        """
        assert self.neural_lm is not None
        value, ints[NEURAL_STATE] = self.neural_lm.advance(ints[NEURAL_STATE], words)
        floats[NEURAL_LM] = floats[NEURAL_LM] + weighed(self.options.gamma, value)

    def _read_phrase(self, ints: Columns, symbols: np.ndarray) -> None:
        assert self.phrases is not None
        ints[PHRASE], earned = self.phrases.advance(ints[PHRASE], symbols)
        ints[EARNED] = ints[EARNED] + earned
