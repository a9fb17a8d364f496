"""The models with a CTC head, and what their logits mean: the tokens, the blank, the time of a frame.

It opens no weights and runs no network.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from panels.running.choices import RuntimeOffer, offers
from workbench.core.errors import BadInput
from workbench.families.vocabularies.ctc_layouts import LogitsLayout
from workbench.families.vocabularies.funasr import CONTINUATION, SPACES, WORD_START
from workbench.registry.cards import Card
from workbench.registry.ctc_layouts import logits_layout
from workbench.registry.registry import Registry
from workbench.registry.sources import local_checkpoint

LOGITS = "logits"  # the stage that a search decodes


def has_separate_tokens(pieces: Sequence[str]) -> bool:
    """Returns whether tokens are read one by one, with spaces between them, as phonemes are.

    This is true unless a mark or a blank shows where words begin, or most tokens are single characters.
    """
    return _has_separate_tokens(tuple(pieces))


@functools.lru_cache(maxsize=8)
def _has_separate_tokens(pieces: tuple[str, ...]) -> bool:
    marks = (WORD_START, CONTINUATION)
    if any((piece.startswith(marks) and piece != CONTINUATION) or piece in SPACES for piece in pieces):
        return False
    return 2 * sum(len(piece) > 1 for piece in pieces) > len(pieces)


def marks_words(pieces: Sequence[str]) -> bool:
    """Returns whether some tokens have the mark of a word's start."""
    return _marks_words(tuple(pieces))


@functools.lru_cache(maxsize=8)  # called for every frame, with tens of thousands of tokens
def _marks_words(pieces: tuple[str, ...]) -> bool:
    return any(piece.startswith(WORD_START) for piece in pieces)


HEARING = ("sensevoice",)
"""Families whose usual decoding computes the logits of a CTC head."""


def headed_offers(registry: Registry) -> tuple[RuntimeOffer, ...]:
    """Returns the models with a CTC head on every runtime that computes here; those that can run come first."""
    return tuple(each for each in offers(registry) if each.card.family in HEARING and not each.elsewhere)


def layout_of(card: Card) -> LogitsLayout:
    """Returns the layout of a model whose checkpoint is on this machine. Raises `BadInput` if it cannot be read."""
    if local_checkpoint(card) is None:
        raise BadInput(f"the checkpoint of {card.name} is not on this machine any more; open the model again")
    return logits_layout(card)
