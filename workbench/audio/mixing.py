"""Makes 16 kHz mono of decoded blocks: averages their channels, and resamples.

Channels of opposite polarity cancel each other. Their average is silent, so such a recording is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.audio.constants import INT16_SCALE, SAMPLE_RATE
from workbench.core.errors import BadInput

QUIETEST = 1 / INT16_SCALE  # amplitude of the quietest sound that 16 bits hold
AUDIBLE = 100 * QUIETEST  # amplitude of a channel that holds more than noise


class Mixer:
    """Averages channels block by block, and remembers how loud they were and how loud their average is."""

    def __init__(self) -> None:
        self._before = self._after = 0.0

    def __call__(self, block: np.ndarray) -> np.ndarray:
        """Returns float32 [samples] of a block [samples, channels] of finite values."""
        if block.shape[1] == 1:
            return np.ascontiguousarray(block[:, 0], dtype=np.float32)
        mono = block.mean(axis=1, dtype=np.float64).astype(np.float32)
        if len(block):
            self._before = max(self._before, float(np.abs(block).max()))
            self._after = max(self._after, float(np.abs(mono).max()))
        return mono

    def check(self, name: str) -> None:
        """Raises `BadInput` if the channels of the recording `name` cancelled each other."""
        if self._before >= AUDIBLE and self._after < QUIETEST:
            raise BadInput(
                f"the channels of {name} cancel each other when they are mixed, as they hold the same sound with "
                "opposite signs; keep one of them alone, as in: ffmpeg -i STEREO.wav -af 'pan=mono|c0=c0' MONO.wav"
            )


def resampler(rate: int) -> Callable[[np.ndarray, bool], np.ndarray]:
    """Returns a function that takes a mono block and whether it is the last, and returns the next samples at 16 kHz."""
    if rate == SAMPLE_RATE:
        return lambda block, last: block
    import soxr

    stream = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32", quality="VHQ")
    return lambda block, last: stream.resample_chunk(block, last=last)
