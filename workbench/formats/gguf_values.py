"""Finds values in a GGUF file that are not finite, without dequantising it.

A quantised block is finite if its scales are: its other numbers are whole. So a scan reads the scales alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_CHUNK = 1 << 20  # bytes at a time, so that intermediate results stay in the processor's cache

# Bit patterns, without the sign, from which on a number is infinite or no number.
_INFINITE_FLOAT16, _INFINITE_BFLOAT16, _INFINITE_FLOAT32, _INFINITE_FLOAT64 = (
    0x7C00,
    0x7F80,
    0x7F800000,
    0x7FF0000000000000,
)
_FLOATS: Mapping[str, tuple[str, int]] = {
    "F32": ("<u4", _INFINITE_FLOAT32),
    "F16": ("<u2", _INFINITE_FLOAT16),
    "BF16": ("<u2", _INFINITE_BFLOAT16),
    "F64": ("<u8", _INFINITE_FLOAT64),
}

_SCALES: Mapping[str, tuple[int, ...]] = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "IQ1_S": (0,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
}
"""The first byte, in a block of ggml's, of each scale in half precision. Types with other scales are not scanned."""


def all_finite(stored: np.ndarray, kind: str, block_bytes: int) -> bool:
    """Returns whether all numbers of a tensor are finite.

    Args:
        stored: its bytes, uint8 [nbytes].
        kind: the type, such as Q8_0.
        block_bytes: the bytes of one block of that type.
    """
    if kind in _FLOATS:
        dtype, limit = _FLOATS[kind]
        bits = stored.view(dtype)
        step = _CHUNK // bits.itemsize
        return not any(_reaches(bits[first : first + step], limit) for first in range(0, len(bits), step))
    blocks = stored.reshape(-1, block_bytes)
    step = max(1, _CHUNK // block_bytes)
    return not any(
        _reaches(np.ascontiguousarray(blocks[first : first + step, at : at + 2]).view("<u2"), _INFINITE_FLOAT16)
        for at in _SCALES.get(kind, ())
        for first in range(0, len(blocks), step)
    )


def _reaches(bits: np.ndarray, limit: int) -> bool:
    """Returns whether a number is as large as the limit, signs aside: shifting a bit pattern takes its sign away."""
    return bool((bits << 1).max() >= limit << 1)
