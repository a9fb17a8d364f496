"""The vocabulary of a language model over text and parallel codec streams, and the meaning of its ids.

All numbers come from a checkpoint. Ids are global: text and all streams share one vocabulary. It has three intervals:
special tokens, text tokens, and one part per codec stream. The first id of a stream's part is the stream's pad, the
others are its codes. This file knows no checkpoint and no runtime.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPECIAL = ("pad", "bos", "eos", "eot", "system", "user", "assistant", "text", "audio")
"""The names of the special ids, in the order in which ESPnet numbers them from 0 on."""


@dataclass(frozen=True)
class SpeechLayout:
    """The intervals and special ids of a vocabulary; intervals are half open."""

    vocabulary: int  # number of ids
    text_first: int  # id of the tokenizer's token 0
    text_end: int
    codec_first: int  # the pad of stream 0
    streams: int  # parallel codec streams
    layer_size: int  # ids of one stream: its pad and its codes
    pad: int  # what streams hold that are not in use
    bos: int
    eos: int  # closes a message if the next one has another role, or the answer
    eot: int  # closes a message if the next one has the same role
    system: int
    user: int
    assistant: int
    text: int  # marks the beginning of text
    audio: int  # marks the beginning of audio

    @property
    def codec_end(self) -> int:
        """The end of the last stream's interval."""
        return self.codec_first + self.streams * self.layer_size

    @property
    def codes(self) -> int:
        """The number of codes of a stream's codebook."""
        return self.layer_size - 1

    @property
    def pads(self) -> NDArray[np.int64]:
        """The pad of each stream [streams], for positions that the delay pattern leaves empty."""
        return self.codec_first + self.layer_size * np.arange(self.streams)

    def interval(self, stream: int) -> tuple[int, int]:
        """Returns the first id and the end of a stream's interval, its pad included."""
        first = self.codec_first + stream * self.layer_size
        return first, first + self.layer_size

    def counted(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns which ids of rows [n, streams] count: a row's embedding is the sum of theirs.

        Stream 0 always counts. The other streams do not count where they hold the pad.
        """
        counts: NDArray[np.bool_] = rows != self.pad
        counts[:, 0] = True
        return counts

    def row(self, first: int) -> NDArray[np.int64]:
        """Returns the ids of a position [streams] that holds a text or special token."""
        ids = np.full(self.streams, self.pad, dtype=np.int64)
        ids[0] = first
        return ids
