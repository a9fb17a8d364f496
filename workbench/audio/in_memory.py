"""Recordings in memory, `(samples, sample_rate)`: what their samples may be."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.core.errors import BadInput

# Integer types of samples: full scale, and the value of silence.
INTEGER_SCALE = {"int8": (1 << 7, 0), "uint8": (1 << 7, 1 << 7), "int16": (1 << 15, 0), "int32": (1 << 31, 0)}


def samples_and_rate(source: Any) -> tuple[np.ndarray, int]:
    """Returns the samples [n] or [n, channels] and their rate in Hz; raises `BadInput` for a pair of anything else."""
    samples, rate = source
    if isinstance(samples, (int, float, np.number)) and isinstance(rate, (np.ndarray, list)):
        raise BadInput("a recording in memory is (samples, sample_rate), and these two came in the other order")
    is_number = isinstance(rate, (int, float, np.integer, np.floating)) and not isinstance(rate, bool)
    if not is_number or rate != rate // 1:
        raise BadInput(f"the sample rate of a recording in memory is a whole number of Hz, not {rate!r:.40}")
    try:
        array = np.asarray(samples)
    except ValueError as error:
        raise BadInput(f"the samples of a recording in memory do not form an array: {error}") from error
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0):
        raise BadInput(f"samples of shape (n,) or (n, channels) are expected, not {array.shape}")
    if array.ndim == 2 and array.shape[0] < array.shape[1]:
        raise BadInput(
            f"samples of shape (n, channels) are expected, and {array.shape} has more channels than samples; transpose "
            "them if the channels come first"
        )
    if array.dtype.name not in INTEGER_SCALE and array.dtype.kind != "f":
        raise BadInput(f"samples are float or {', '.join(INTEGER_SCALE)}, not {array.dtype.name}")
    return array, int(rate)
