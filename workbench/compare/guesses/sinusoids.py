"""Sinusoids of positions: their rates, and the layouts of sines and cosines in the channels.

Source: Vaswani et al., Attention Is All You Need (2017).
"""

from __future__ import annotations

import numpy as np

LAYOUTS = {
    "halves": "sines in the first half and cosines in the second",
    "cosines first": "cosines in the first half and sines in the second",
    "interleaved": "sines and cosines in turn",
}


def rates(width: int, base: float, steps_less: int = 0) -> np.ndarray:
    """Returns the angle from one position to the next, in radians, of each pair of channels: [width // 2].

    They fall from 1 to one over the base in `width // 2 - steps_less` steps.
    """
    pairs = width // 2
    return np.asarray(base ** (-np.arange(pairs) / max(pairs - steps_less, 1)))


def laid_out(sines: np.ndarray, cosines: np.ndarray, layout: str) -> np.ndarray:
    """Returns sines and cosines [rows, pairs] as channels [rows, 2 * pairs], in one of LAYOUTS."""
    if layout == "interleaved":
        return np.stack([sines, cosines], axis=-1).reshape(len(sines), -1)
    return np.concatenate([cosines, sines] if layout == "cosines first" else [sines, cosines], axis=1)
