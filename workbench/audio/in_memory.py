"""Recordings in memory, `(samples, sample_rate)`: their forms, and what their samples may be.

The audio of a row of Hugging Face's datasets is such a recording, too: a mapping with "array" and "sampling_rate", or
in newer versions a decoder of torchcodec.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from workbench.core.errors import BadInput

# Integer types of samples: full scale, and the value of silence.
INTEGER_SCALE = {"int8": (1 << 7, 0), "uint8": (1 << 7, 1 << 7), "int16": (1 << 15, 0), "int32": (1 << 31, 0)}


def is_in_memory(source: Any) -> bool:
    """Returns whether a value has the form of a recording in memory, whatever its samples are."""
    if isinstance(source, tuple):
        return len(source) == 2 and not isinstance(source[0], Mapping)  # else it is a conversation
    if isinstance(source, list):  # a pair from JSON
        return len(source) == 2 and any(isinstance(each, Real) for each in source)
    return _is_row(source) or hasattr(source, "get_all_samples")


def pair_of(source: Any) -> tuple[Any, Any]:
    """Returns a recording in memory as (samples, sample rate), unchecked; decodes a decoder's recording.

    Raises `BadInput` for anything else, such as an open file.
    """
    if not is_in_memory(source):
        raise BadInput(f"a recording is a path or (samples, sample_rate), not {type(source).__name__}{_hint(source)}")
    if isinstance(source, (tuple, list)):
        samples, rate = source
        return samples, rate
    if _is_row(source):
        return source["array"], source["sampling_rate"]
    try:
        decoded = source.get_all_samples()
    except RuntimeError as error:
        raise BadInput(f"the recording in memory cannot be decoded: {error}") from error
    return decoded.data.T, decoded.sample_rate  # torchcodec has [channels, n]


def _is_row(source: Any) -> bool:
    return isinstance(source, Mapping) and {"array", "sampling_rate"} <= source.keys()


def _hint(source: Any) -> str:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "; soundfile.read(io.BytesIO(content)) returns both for the content of a file"
    if hasattr(source, "read"):
        return "; give the path of an open file, or what soundfile.read(file) returns"
    if isinstance(source, Mapping):
        return "; a mapping needs array and sampling_rate, as a row of datasets has them"
    return ""


def samples_and_rate(source: Any) -> tuple[np.ndarray, int]:
    """Returns the samples [n] or [n, channels] of a recording in memory, and their rate in Hz.

    Raises `BadInput` for anything else.
    """
    samples, rate = pair_of(source)
    if isinstance(samples, (int, float, np.number)) and isinstance(rate, (np.ndarray, list)):
        raise BadInput("a recording in memory is (samples, sample_rate), and these two came in the other order")
    is_number = isinstance(rate, (int, float, np.integer, np.floating)) and not isinstance(rate, bool)
    if not is_number or rate != rate // 1:
        raise BadInput(f"the sample rate of a recording in memory is a whole number of Hz, not {rate!r:.40}")
    try:
        array = np.asarray(samples)
    except (ValueError, TypeError, RuntimeError) as error:  # a tensor with gradients, or of bfloat16
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
