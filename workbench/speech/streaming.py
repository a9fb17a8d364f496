"""Decodes codec rows while they are generated, in chunks; joined, they equal the whole decoded at once.

Row t completes frame t - streams + 1. Frames on both sides of a chunk change its samples, so they are decoded with it.
A sample is returned when no later frame can change it. This file knows no particular codec.
"""

from __future__ import annotations

import numpy as np

from workbench.speech.delay import aligned
from workbench.speech.layout import SpeechLayout
from workbench.speech.network import Codec

FIRST_FRAMES = 6  # of the first chunk: 0.12 s at 50 frames a second
GROWTH = 1.5  # there is no gap if frames come at least 1.5 times as fast as they play
MAX_FRAMES = 50


class AudioChunks:
    """Takes the rows of an answer one by one and returns samples in chunks.

    The first chunk is short, so that the speech begins early. Each next chunk is longer, because every chunk decodes
    the frames on its sides again.
    """

    def __init__(
        self,
        codec: Codec,
        layout: SpeechLayout,
        first_frames: int = FIRST_FRAMES,
        growth: float = GROWTH,
        max_frames: int = MAX_FRAMES,
    ):
        self._codec, self._layout = codec, layout
        self._chunk_frames, self._growth, self._most = float(first_frames), growth, max_frames
        self._rows: list[np.ndarray] = []
        self._returned = 0  # frames whose samples have been returned

    def add(self, row: np.ndarray) -> np.ndarray | None:
        """Takes a row of global ids [streams]; returns the next chunk of samples, float32, if one is due."""
        self._rows.append(np.asarray(row))
        complete = len(self._rows) - self._layout.streams + 1
        ready = complete - self._codec.receptive_field[1]
        if ready - self._returned < int(self._chunk_frames):
            return None
        self._chunk_frames = min(self._chunk_frames * self._growth, float(self._most))
        return self._decoded(ready)

    def finish(self) -> np.ndarray:
        """Returns the rest of the samples; no row may follow. Empty if there are none."""
        complete = max(len(self._rows) - self._layout.streams + 1, 0)
        return self._decoded(complete) if complete > self._returned else np.empty(0, dtype=np.float32)

    def _decoded(self, end: int) -> np.ndarray:
        """Returns the samples of the frames up to `end` that have not been returned yet."""
        start = max(self._returned - self._codec.receptive_field[0], 0)
        codes = aligned(np.stack(self._rows[start:]), self._layout)
        hop = self._codec.hop
        samples = self._codec.decode(codes)[(self._returned - start) * hop : (end - start) * hop]
        self._returned = end
        return samples
