"""Silero's voice activity network for streaming: one probability for each 32 ms of sound.

A chunk takes a fraction of a millisecond.
"""

from __future__ import annotations

import numpy as np

from workbench.audio.silero_network import CONTEXT, Memory, encoded


class SileroStream:
    """The network with its recurrent state. Raises `Unavailable` if it is not installed."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Resets the state, as at the start of a recording."""
        self._context = np.zeros(CONTEXT, np.float32)
        self._memory = Memory()

    def probability(self, chunk: np.ndarray) -> float:
        """Returns the probability that the next 512 samples (float32 at 16 kHz) are speech."""
        samples = np.concatenate([self._context, chunk])
        self._context = samples[-CONTEXT:]
        return float(self._memory.probabilities(encoded(samples[None])[:, None])[0, 0])
