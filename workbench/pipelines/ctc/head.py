"""Beam search over the CTC head of a loaded model, for text tokens.

Special tokens, which are tags and control tokens, count as blanks (see `workbench.decoding.special_tokens`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.options import option_specs
from workbench.core.resources import close
from workbench.core.settings import Settings
from workbench.decoding.ctc import CtcToken
from workbench.decoding.ctc_alignment import best_alignment
from workbench.decoding.ctc_beam.decoder import CtcDecoder
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_options import CtcBeamOptions
from workbench.decoding.special_tokens import text_log_probabilities
from workbench.decoding.word_spans import word_spans
from workbench.families import FAMILIES
from workbench.pipelines.ctc.beam_search import build_decoder, ngram_notes
from workbench.session.values import SpokenHypothesis, Token

TimedTokens = Callable[[Sequence[CtcToken]], tuple[Token, ...]]
TextOf = Callable[[Sequence[int]], str]

_FILES = tuple(spec.name for spec in option_specs(CtcBeamOptions) if spec.file)


class CtcHead:
    """The outputs of a model's CTC head, searched as the options of a call say.

    The last search is kept, because its files may be large. It is built again if the options or a file changed.

    Args:
        pieces: the token of each column of the logits.
        blank: the index of the blank.
        special_ids: indices of tokens without text, such as tags.
    """

    def __init__(self, pieces: Sequence[str], blank: int, special_ids: Sequence[int]):
        self._pieces = tuple(pieces)
        self._blank = blank
        self._special_ids = tuple(special_ids)
        self._key: Any = None
        self._decoder: CtcDecoder | None = None
        self._language_model: Any = None

    def text_log_probs(self, logits: np.ndarray) -> np.ndarray:
        """Returns ln P of each token in each frame, float64 [frames, vocabulary], with special tokens as blanks."""
        return text_log_probabilities(logits, len(self._pieces), self._blank, self._special_ids)

    def search(self, log_probs: np.ndarray, options: CtcBeamOptions) -> list[Hypothesis]:
        """Returns the best hypotheses of a result of `text_log_probs`, best first.

        Raises `BadInput` as `workbench.pipelines.ctc.beam_search.build_decoder` does.
        """
        [hypotheses] = self._decoder_for(options).decode([log_probs])
        return hypotheses

    def spoken_hypotheses(
        self, scores: np.ndarray, options: CtcBeamOptions, timed_tokens: TimedTokens, text_of: TextOf
    ) -> list[tuple[list[CtcToken], SpokenHypothesis]]:
        """Returns the best hypotheses of a result of `text_log_probs`, with times, and their best alignments.

        The best comes first.

        Args:
            scores: ln P of each token in each frame.
            options: of the search.
            timed_tokens: gives the tokens of an alignment their times, one for each.
            text_of: gives the text of tokens.
        """
        return [
            self._spoken_hypothesis(hypothesis, scores, timed_tokens, text_of)
            for hypothesis in self.search(scores, options)
        ]

    def _spoken_hypothesis(
        self, hypothesis: Hypothesis, scores: np.ndarray, timed_tokens: TimedTokens, text_of: TextOf
    ) -> tuple[list[CtcToken], SpokenHypothesis]:
        path = best_alignment(scores, hypothesis.tokens, self._blank) or []
        tokens = timed_tokens(path)
        text, words = text_of(hypothesis.tokens), None
        if hypothesis.words is not None:
            text = " ".join(hypothesis.words)
            words = tuple(
                Token(hypothesis.tokens[first], word, tokens[first].start, tokens[end - 1].end)
                for word, (first, end) in zip(hypothesis.words, self.word_spans(hypothesis), strict=True)
            )
        return path, SpokenHypothesis(text, tokens, words, hypothesis.score, hypothesis.acoustic, hypothesis.lm)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that say what the last search's n-gram models lack, and what is used instead."""
        return ngram_notes(self._decoder) if self._decoder else ()

    def word_spans(self, hypothesis: Hypothesis) -> list[tuple[int, int]]:
        """Returns the tokens of each word in a hypothesis of the last search, as (first, end) indices.

        Empty without a lexicon.
        """
        lexicon = self._decoder.lexicon if self._decoder else None
        return word_spans(hypothesis.tokens, hypothesis.words or (), lexicon) if lexicon else []

    def _decoder_for(self, options: CtcBeamOptions) -> CtcDecoder:
        key = options, tuple(_stamp(getattr(options, name)) for name in _FILES)
        if self._decoder is None or key != self._key:
            self.close()
            with contextlib.ExitStack() as stack:  # a language model that is open already if another file is broken
                stack.callback(self.close)
                self._decoder = build_decoder(options, self._pieces, self._blank, self._open(options))
                stack.pop_all()
            self._key = key
        return self._decoder

    def _open(self, options: CtcBeamOptions) -> Any:
        def opener(place: str) -> Any:
            runtime = options.neural_runtime or ("pytorch" if Path(place).is_dir() else "gguf")
            # Imported by name, as the runtimes are in a layer above the pipelines.
            module = import_module(str(FAMILIES["causal_lm"].cell(runtime).module))
            self._language_model = module.open_session(Path(place), Path(place).name, Settings())
            return self._language_model

        return opener

    def close(self) -> None:
        """Drops the search and frees its language model."""
        self._decoder, self._key = None, None
        model, self._language_model = self._language_model, None
        close(model)


def _stamp(path: str | None) -> tuple[int, int] | None:
    """Returns the modification time and size of a file, which show a change; None for no file."""
    try:
        status = Path(path).stat() if path is not None else None
    except (OSError, ValueError):  # reading it later reports the error
        return None
    return None if status is None else (status.st_mtime_ns, status.st_size)
