"""Spells texts in the tokens of a CTC network, as it was trained to write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.families.sanm.sensevoice import is_tag, read_sensevoice, sentencepiece_file
from workbench.families.vocabularies.funasr import CONTROL_PIECES, UNKNOWN_PIECE, load_sentencepiece


@dataclass(frozen=True)
class Speller:
    """What turns a text into tokens."""

    tokens: tuple[str, ...]
    """All tokens that stand for text, without tags and control tokens."""
    spell: Callable[[str], Sequence[str]]
    """Returns the tokens of a text; a part that they cannot spell is a name that is not among `tokens`."""


def sensevoice_speller(directory: Path) -> Speller:
    """Returns the speller of a SenseVoice checkpoint. Raises `BadInput` if it has no SentencePiece model."""
    model = read_sensevoice(directory)
    file = sentencepiece_file(model.checkpoint)
    if file is None:
        raise BadInput(
            f"{directory.name} has a list of tokens and no SentencePiece model that spells texts with them; "
            "expected a checkpoint with *.bpe.model"
        )
    processor = load_sentencepiece(file)

    def spell(text: str) -> Sequence[str]:
        pieces: Any = processor.encode(text, out_type=str)
        return list(pieces)

    return Speller(tuple(piece for piece in model.vocabulary.pieces if _is_text(piece)), spell)


def _is_text(piece: str) -> bool:
    return not is_tag(piece) and piece not in (*CONTROL_PIECES, UNKNOWN_PIECE)
