"""Numbers rounded to types of 16 bits."""

from __future__ import annotations

import numpy as np


def rounded_to_float16(x: np.ndarray) -> np.ndarray:
    """Returns the nearest numbers that float16 has, in float64."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float64)


def rounded_to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Returns the nearest numbers that bfloat16 has, in float64."""
    bits = x.astype(np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)
