"""How loud a recording is where it is loudest, and the same recording at the level that speech detectors work at.

Both measure frames of 10 ms and take no single one for the level, so that a click in a quiet recording changes nothing.
"""

import numpy as np

from workbench.audio.constants import FRAME_SHIFT, SAMPLE_RATE
from workbench.audio.spans import frame_levels

ENOUGH_DB = -23.0  # of full scale: speech whose loudest half second has this level is loud enough for silero
MOST_DB = 60.0  # of amplification; the rounding noise of 16 bits stays 35 dB below full scale
_LOUD_FRAMES = round(0.5 * SAMPLE_RATE / FRAME_SHIFT)


def loud_level(levels: np.ndarray) -> float:
    """The level that the loudest half second of `levels` [frames] in dB reaches; -100 without frames."""
    if len(levels) == 0:
        return -100.0
    place = max(len(levels) - _LOUD_FRAMES, 0)
    return float(np.partition(levels, place)[place])


def raised(samples: np.ndarray, enough: float = ENOUGH_DB) -> np.ndarray:
    """The samples [n], amplified to the level `enough` where they are quieter; those that are loud enough as they are.

    A constant offset counts for nothing, and is taken away where samples are amplified.
    """
    frames = samples[: len(samples) // FRAME_SHIFT * FRAME_SHIFT].reshape(-1, FRAME_SHIFT)
    if len(frames) == 0:
        return samples
    means = frames.mean(axis=1, keepdims=True)
    gain = min(enough - loud_level(frame_levels((frames - means).reshape(-1))), MOST_DB)
    if gain <= 0:
        return samples
    louder: np.ndarray = (samples - np.median(means)) * np.float32(10 ** (gain / 20))
    return louder
