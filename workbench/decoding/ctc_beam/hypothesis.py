"""What a beam search returns: hypotheses, and the parts of their scores."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One result of a search. All parts of the score are natural logarithms, already multiplied by their weights."""

    tokens: tuple[int, ...]
    words: tuple[str, ...] | None  # with a lexicon; a pronunciation variant `word(2)` is `word`
    acoustic: float  # ln P(tokens) by CTC: the sum over all alignments, or the best one
    token_lm: float = 0.0  # of the tokens and the end of the sentence
    word_lm: float = 0.0  # of the words and the end of the sentence, by a word n-gram model
    neural_lm: float = 0.0  # of the text of the words and its end, by a neural language model
    bonus: float = 0.0  # for the number of tokens and of words
    boost: float = 0.0  # for the phrases that occur

    @property
    def lm(self) -> float:
        """What all language models add to the score."""
        return self.token_lm + self.word_lm + self.neural_lm

    @property
    def score(self) -> float:
        """The sum by which hypotheses are ranked."""
        return self.acoustic + self.lm + self.bonus + self.boost
