"""Floating-point numbers as files have them, by name, and all of them as float32.

numpy knows neither bfloat16 nor 8-bit floats: they come as bits. This file knows no format of files.
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
"""numpy's type for the bytes of each, without the order of the bytes. The names are PyTorch's."""

EXPECTED = "float16, bfloat16, float32 or float64"


def as_float32(values: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers of a type in `FLOATS`, as numpy has their bytes, as float32 in a C-contiguous array of its own.

    All are kept exactly but float64, which is rounded; what is beyond float32's range becomes infinite.
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
    """The 256 values of float8_e4m3fn: four bits of exponent, three of mantissa, no infinity (arXiv:2209.05433)."""
    bits = np.arange(256)
    exponent, mantissa = (bits >> 3) & 15, (bits & 7) / 8
    size = np.where(exponent == 0, mantissa * 2.0**-6, (1 + mantissa) * 2.0 ** (exponent - 7))
    size[(bits & 127) == 127] = np.nan
    return np.where(bits & 128, -size, size).astype(np.float32)


_E4M3 = _e4m3()
