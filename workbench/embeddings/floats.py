"""The floating-point types of files by name, and their conversion to float32.

numpy has neither bfloat16 nor 8-bit floats, so they come as bits. This file knows no file format.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

FLOATS: Mapping[str, str] = {
    "float16": "f2",
    "bfloat16": "u2",
    "float32": "f4",
    "float64": "f8",
    "float8_e4m3fn": "u1",
    "float8_e5m2": "u1",
}
"""numpy's type for the bytes of each type, without byte order. The names are PyTorch's."""

EXPECTED = "float16, bfloat16, float32 or float64"


def as_float32(values: np.ndarray, dtype: str) -> np.ndarray:
    """Returns numbers of a type in `FLOATS`, stored as numpy has their bytes, as a new C-contiguous float32 array.

    All values stay exact except float64, which is rounded; values beyond float32's range become infinite.
    """
    if dtype == "bfloat16":  # the upper half of a float32
        return (values.astype(np.uint32, order="C") << 16).view(np.float32)
    if dtype == "float8_e5m2":  # the upper half of a float16
        return (values.astype(np.uint16, order="C") << 8).view(np.float16).astype(np.float32)
    if dtype == "float8_e4m3fn":
        return np.ascontiguousarray(_E4M3[values])
    with np.errstate(over="ignore"):
        return np.array(values, dtype=np.float32, order="C")


def _e4m3() -> np.ndarray:
    """Returns the 256 values of float8_e4m3fn: 4 bits of exponent, 3 of mantissa, no infinity (arXiv:2209.05433)."""
    bits = np.arange(256)
    exponent, mantissa = (bits >> 3) & 15, (bits & 7) / 8
    size = np.where(exponent == 0, mantissa * 2.0**-6, (1 + mantissa) * 2.0 ** (exponent - 7))
    size[(bits & 127) == 127] = np.nan
    return np.where(bits & 128, -size, size).astype(np.float32)


_E4M3 = _e4m3()
