"""Makes a CTC beam search from the user's options, and texts from its hypotheses.

This file reads the files that the options name, once for each search. It knows no network: the caller passes a function
that opens a neural language model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.decoding.ctc_beam.decoder import CtcDecoder
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_beam.lexicon import read_lexicon
from workbench.decoding.ctc_beam.phrases import read_phrases
from workbench.decoding.ctc_options import CtcBeamOptions
from workbench.decoding.language_model import LanguageModel
from workbench.decoding.neural import NeuralModel
from workbench.decoding.ngram.kenlm_binary import KenlmModel
from workbench.decoding.ngram.model import NgramModel
from workbench.decoding.ngram.read import read_ngram_model
from workbench.families.vocabularies.funasr import Vocabulary

OpenLanguageModel = Callable[[str], Any]
"""Opens the session of a language model that the options name; the caller that passes it closes the session."""


@dataclass(frozen=True)
class TextHypothesis:
    """A result of a beam search as text. `score`, `acoustic` and `lm` are natural logarithms."""

    text: str
    tokens: tuple[str, ...]
    words: tuple[str, ...] | None  # with a lexicon
    score: float  # the total, by which hypotheses are ranked
    acoustic: float  # ln P(tokens) by CTC
    lm: float  # of all language models, already weighted, with the end of the sentence

    def to_dict(self) -> dict[str, Any]:
        """Returns the hypothesis as plain JSON values; `words` is left out without a lexicon."""
        words = {} if self.words is None else {"words": list(self.words)}
        numbers = {"score": self.score, "acoustic": self.acoustic, "lm": self.lm}
        return {"text": self.text, "tokens": list(self.tokens), **words, **numbers}

    def _repr_html_(self) -> str:
        return Hypotheses((self,))._repr_html_()


class Hypotheses(tuple[TextHypothesis, ...]):
    """The results of a beam search for one recording, best first: a tuple that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from workbench.session.display import hypotheses_html

        title = "Result of a CTC beam search" if len(self) == 1 else f"{len(self)} results of a CTC beam search"
        return hypotheses_html([(each.text, each.score, each.acoustic, each.lm) for each in self], title)


def build_decoder(
    options: CtcBeamOptions, pieces: Sequence[str], blank: int, open_session: OpenLanguageModel
) -> CtcDecoder:
    """Returns the search that the options ask for, with all files read.

    Args:
        options: checked by `workbench.core.options.build_options`.
        pieces: the token of each column of the logits.
        blank: the index of the blank among them.
        open_session: opens the session of `options.neural_lm`.

    Raises `BadInput` for a file that is missing or broken, or does not fit the others.
    """
    lexicon = read_lexicon(options.lexicon, pieces, blank) if options.lexicon is not None else None
    symbols, symbol_kind = (pieces, "token") if lexicon is None else (lexicon.words, "word of the lexicon")
    phrases = None
    if options.boost is not None:
        phrases = read_phrases(options.boost, symbols, symbol_kind, blank if lexicon is None else None)
    token_lm, word_lm = _ngrams(options.lm, pieces), _ngrams(options.word_lm, symbols)
    # Last, as it takes longest.
    neural_lm = _neural(options.neural_lm, symbols, open_session)
    return CtcDecoder(
        len(pieces),
        blank,
        options.search,
        token_lm=token_lm,
        lexicon=lexicon,
        word_lm=word_lm,
        neural_lm=neural_lm,
        phrases=phrases,
    )


def _ngrams(path: str | None, symbols: Sequence[str]) -> LanguageModel | None:
    return None if path is None else read_ngram_model(Path(path), symbols)


def ngram_notes(decoder: CtcDecoder) -> tuple[str, ...]:
    """Returns sentences about what the n-gram models of a search lack, and what counts instead."""
    models = (decoder.token_lm, decoder.word_lm)
    return tuple(note for model in models if isinstance(model, (NgramModel, KenlmModel)) for note in model.notes)


def _neural(model: str | None, words: Sequence[str], open_session: OpenLanguageModel) -> LanguageModel | None:
    return None if model is None else NeuralModel(open_session(model).score_texts, words)


def text_hypothesis(hypothesis: Hypothesis, vocabulary: Vocabulary) -> TextHypothesis:
    """Returns a hypothesis with its text: the words joined by spaces, or without a lexicon the tokens' text."""
    text = vocabulary.decode(hypothesis.tokens).strip() if hypothesis.words is None else " ".join(hypothesis.words)
    tokens = tuple(vocabulary.pieces[token] for token in hypothesis.tokens)
    return TextHypothesis(text, tokens, hypothesis.words, hypothesis.score, hypothesis.acoustic, hypothesis.lm)
