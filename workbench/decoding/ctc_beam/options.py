"""The options of a CTC beam search, declared once. Flags, page inputs and keyword arguments are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.core.options import option

MAX_BEAM_SIZE = 1 << 20
MAX_WEIGHT = 1e6


def _weight(default: float, help: str) -> float:
    weight: float = option(default, help, minimum=-MAX_WEIGHT, maximum=MAX_WEIGHT)
    return weight


@dataclass(frozen=True)
class SearchOptions:
    """How wide the search is, and what each part of the score weighs.

    The score of a hypothesis is ln P_ctc(tokens) + alpha ln P_token(tokens, end) + beta (number of tokens), with a
    lexicon also + gamma ln P_word(words, end) + word_bonus (number of words), and with phrases also + boost_score for
    each token (with a lexicon: each word) of a phrase that occurs. Besides the beam, nothing is pruned by default but
    pairs of a hypothesis and its next token: language judges the acoustically best 128, or 2 x beam_size if that is
    more. Where the beam holds everything, there are fewer.
    """

    beam_size: int = option(
        64, "number of hypotheses that the search keeps after each frame", minimum=1, maximum=MAX_BEAM_SIZE
    )
    nbest: int = option(
        1, "number of hypotheses in the result; the beam is at least as wide", minimum=1, maximum=MAX_BEAM_SIZE
    )
    recombination: str = option(
        "sum", "acoustic score: sum over all alignments of the tokens, or the best alignment", ("sum", "max")
    )
    alpha: float = _weight(0.5, "weight of the token language model")
    beta: float = _weight(0.0, "bonus for each token")
    gamma: float = _weight(0.5, "weight of the language models of words (n-gram and neural)")
    word_bonus: float = _weight(0.0, "bonus for each word, if there is a lexicon")
    boost_score: float = _weight(2.0, "bonus for each token of a boosted phrase; if there is a lexicon, for each word")
    tokens_per_frame: int | None = option(
        None,
        "number of likeliest tokens of a frame that may extend a hypothesis (default: all)",
        minimum=1,
        maximum=MAX_BEAM_SIZE,
    )
    threshold: float | None = option(
        None,
        "drop hypotheses whose score is lower than the best by more than this (default: keep all)",
        minimum=0.0,
        maximum=MAX_WEIGHT,
    )
