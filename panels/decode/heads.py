"""The models with a CTC head, and what their logits mean: the tokens, the blank, the time of a frame.

It opens no weights and runs no network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from panels.running.choices import RuntimeOffer, offers
from workbench.core.errors import BadInput
from workbench.families.sensevoice import QUERY_FRAMES, is_spoken, read_sensevoice
from workbench.families.vocabulary import WORD_START
from workbench.pipelines.ctc_head import CtcHead
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.registry.sources import local_checkpoint

LOGITS = "logits"  # the stage that a search decodes


def stand_apart(pieces: Sequence[str]) -> bool:
    """Returns whether tokens are read one by one, with blanks between them, as phonemes are.

    That is so unless a mark or a blank shows where words begin, or most tokens are single characters.
    """
    if any(piece.startswith(WORD_START) or piece in (" ", "|") for piece in pieces):
        return False
    return 2 * sum(len(piece) > 1 for piece in pieces) > len(pieces)


@dataclass(frozen=True)
class LogitsLayout:
    """What the columns and rows of logits mean."""

    pieces: tuple[str, ...]  # the token of each column
    blank: int
    unspoken: tuple[int, ...] = ()  # tokens without text, such as tags; they count as blanks
    frame_seconds: float | None = None  # None if nobody knows, as of a file
    begin: float = 0.0  # seconds from the start of the recording to the first frame; may be negative

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens that are text."""
        silent = {self.blank, *self.unspoken}
        return tuple(piece for number, piece in enumerate(self.pieces) if number not in silent)

    def spoken(self, logits: np.ndarray) -> np.ndarray:
        """Returns ln P of each token in each frame, float64 [frames, vocabulary], with unspoken tokens as blanks."""
        return CtcHead(self.pieces, self.blank, self.unspoken).spoken(logits)


def sensevoice_layout(directory: Path) -> LogitsLayout:
    """Returns the layout of a SenseVoice checkpoint's logits. Before those of speech are the frames of the queries."""
    model = read_sensevoice(directory)
    pieces, step = model.vocabulary.pieces, model.frontend.frame_seconds
    unspoken = tuple(number for number, piece in enumerate(pieces) if not is_spoken(piece))
    return LogitsLayout(pieces, model.blank, unspoken, step, -(QUERY_FRAMES + 0.5) * step)


LAYOUTS: Mapping[str, Callable[[Path], LogitsLayout]] = {"sensevoice": sensevoice_layout}
"""By family with a CTC head: a function from a checkpoint's directory to the layout of its logits."""


def headed_offers(registry: Registry) -> tuple[RuntimeOffer, ...]:
    """Returns the models with a CTC head on every runtime that computes here, those that can run first."""
    return tuple(each for each in offers(registry) if each.card.family in LAYOUTS and not each.elsewhere)


def layout_of(card: Card) -> LogitsLayout:
    """Returns the layout of a model whose checkpoint is on this machine. Raises `BadInput` if it cannot be read."""
    place = local_checkpoint(card)
    if place is None:
        raise BadInput(f"the checkpoint of {card.name} is not on this machine any more; open the model again")
    if place.is_file():
        from workbench.formats.gguf_file import read_gguf
        from workbench.runtimes.gguf.unpacking import unpacked

        with unpacked(read_gguf(place)) as directory:
            return LAYOUTS[card.family](directory)
    return LAYOUTS[card.family](place)
