"""What the logits of a family's CTC head mean: the token of each column, the blank, the time of each frame.

It opens no weights and runs no network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from workbench.core.errors import BadInput
from workbench.decoding.special_tokens import text_log_probabilities
from workbench.families.sanm.sensevoice import QUERY_FRAMES, is_text, read_sensevoice
from workbench.families.speech_llm.funasr_nano import read_funasr_nano
from workbench.families.vocabularies.funasr import Vocabulary


@dataclass(frozen=True)
class LogitsLayout:
    """What the columns and rows of logits mean."""

    pieces: tuple[str, ...]  # the token of each column
    blank: int
    special_ids: Sequence[int] = ()  # tokens without text, such as tags; they count as blanks
    frame_seconds: float | None = None  # seconds from frame to frame; None if unknown, as for logits from a file
    start_seconds: float = 0.0  # seconds from the start of the recording to the first frame; may be negative
    stage: str = ""  # the stage of a trace that holds such logits; empty if no model computes them
    text_vocabulary: Vocabulary | None = field(default=None, compare=False)  # if a token's text differs from its piece

    @property
    def vocabulary(self) -> Vocabulary:
        """Turns tokens into text."""
        return self.text_vocabulary or Vocabulary(self.pieces, "the list of tokens")

    @property
    def text_pieces(self) -> tuple[str, ...]:
        """The tokens that are text."""
        ids_without_text = {self.blank, *self.special_ids}
        return tuple(piece for number, piece in enumerate(self.pieces) if number not in ids_without_text)

    def text_log_probs(self, logits: np.ndarray) -> np.ndarray:
        """Returns ln P of each token in each frame, float64 [frames, vocabulary], with special tokens as blanks."""
        return text_log_probabilities(logits, len(self.pieces), self.blank, self.special_ids)


def sensevoice_layout(directory: Path, weights: Path | None = None) -> LogitsLayout:
    """Returns the layout of a SenseVoice checkpoint's logits. The frames of the queries come before those of speech.

    Args:
        weights: the weights' file, if it is outside the directory.
    """
    model = read_sensevoice(directory, weights)
    pieces, step = model.vocabulary.pieces, model.frontend.frame_seconds
    special_ids = tuple(number for number, piece in enumerate(pieces) if not is_text(piece))
    start_seconds = -(QUERY_FRAMES + 0.5) * step
    return LogitsLayout(pieces, model.blank, special_ids, step, start_seconds, "logits", model.vocabulary)


def funasr_nano_layout(directory: Path, weights: Path | None = None) -> LogitsLayout:
    """Returns the layout of the logits of Fun-ASR-Nano's CTC branch.

    Args:
        weights: the weights' file, if it is outside the directory.

    Raises `BadInput` if the checkpoint has no branch that can be used.
    """
    model = read_funasr_nano(directory, weights)
    branch = model.ctc
    if isinstance(branch, str):
        raise BadInput(f"{directory.name} has no CTC branch that can be used: {branch}")
    vocabulary, step = branch.vocabulary, model.frontend.frame_seconds * branch.decoder.downsample_rate
    return LogitsLayout(
        vocabulary.pieces, branch.blank, vocabulary.special_ids, step, 0.0, "ctc.logits", text_vocabulary=vocabulary
    )
