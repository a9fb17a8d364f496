"""Computes hypotheses from logits, greedily or by beam search, and reads them as text and words."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence

import numpy as np

from panels.decode.heads import has_separate_tokens
from workbench.core.errors import Cancelled
from workbench.decoding.ctc import greedy
from workbench.decoding.ctc_beam.decoder import CtcDecoder
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.families.vocabularies.ctc_layouts import LogitsLayout
from workbench.families.vocabularies.funasr import Vocabulary
from workbench.pipelines.ctc.beam_search import text_hypothesis
from workbench.text.scripts import mixed_units

FRAMES_AT_ONCE = 64  # between two checks whether the run was stopped


def searched(
    decoder: CtcDecoder, logits: np.ndarray, stop: threading.Event, listed: int | None = None
) -> list[Hypothesis]:
    """Returns the hypotheses of logits [frames, vocabulary], best first; raises `Cancelled` if `stop` is set.

    Args:
        listed: how many to return: those of `CtcDecoder.decode` first, then others of the same beam. None: the n best
            of the beam, even if `decode` would search again with a wider one.
    """
    state = decoder.begin()
    for first in range(0, len(logits), FRAMES_AT_ONCE):
        if stop.is_set():
            raise Cancelled("the run was stopped")
        decoder.advance(state, logits[first : first + FRAMES_AT_ONCE])
    return decoder.finish(state) if listed is None else decoder.finish_whole(state, logits, listed)


def greedy_hypothesis(logits: np.ndarray, layout: LogitsLayout) -> Hypothesis:
    """Returns the best path of log-probabilities as a hypothesis; its acoustic score counts this one path only."""
    tokens = tuple(each.id for each in greedy(logits, layout.blank))
    return Hypothesis(tokens, None, float(logits.max(axis=1).sum()))


def text_of(hypothesis: Hypothesis, pieces: Sequence[str]) -> str:
    """Returns the text of a hypothesis: the words of the lexicon, or without one the tokens' text."""
    return text_hypothesis(hypothesis, _vocabulary(tuple(pieces))).text


@functools.lru_cache(maxsize=8)  # called for every hypothesis, with tens of thousands of tokens
def _vocabulary(pieces: tuple[str, ...]) -> Vocabulary:
    return Vocabulary(pieces, "")


def words_of(hypothesis: Hypothesis, pieces: Sequence[str]) -> tuple[str, ...]:
    """Returns the words of a hypothesis: those of the lexicon, else those of its text.

    In a script without spaces, each character is a word. Tokens such as phonemes are words by themselves.
    """
    if hypothesis.words is not None:
        return hypothesis.words
    if has_separate_tokens(pieces):
        return tuple(pieces[token] for token in hypothesis.tokens)
    return tuple(mixed_units(text_of(hypothesis, pieces)))
