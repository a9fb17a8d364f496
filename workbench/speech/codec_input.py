"""What a codec of any runtime takes: codes of its codebooks, and recordings that its encoder can read."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.phrases import counted


def check_codes(codes: np.ndarray, streams: int, count: int) -> None:
    """Raises `BadInput` unless the codes [frames, at most `streams`] are between 0 and `count` - 1."""
    if codes.ndim != 2 or codes.shape[1] > streams or not 0 <= codes.min() <= codes.max() < count:
        raise BadInput(
            f"the codes have the shape {codes.shape} and values from {codes.min()} to {codes.max()}; expected "
            f"frames of {streams} codes from 0 to {count - 1}"
        )


def whole_frames(samples: np.ndarray, hop: int, sample_rate: int) -> np.ndarray:
    """Returns the samples [n] without those of an incomplete last frame, float32.

    Raises `BadInput` if there is no frame.
    """
    frames = len(samples) // hop
    if not frames:
        raise BadInput(
            f"the speech has {counted(len(samples), 'sample')} at {sample_rate} Hz; expected at least {hop}, one "
            "frame of the codec"
        )
    return np.ascontiguousarray(samples[: frames * hop], dtype=np.float32)


def of_length(codes: np.ndarray, frames: int) -> np.ndarray:
    """Returns codes [frames, streams] from codes [n, streams]. As in ESPnet, the last row is repeated if n is less."""
    if len(codes) < frames:
        codes = np.concatenate([codes, np.repeat(codes[-1:], frames - len(codes), axis=0)])
    return codes[:frames]


def check_branches(acoustic: int, semantic: int) -> None:
    """Raises `BadInput` unless both branches of an encoder give as many rows for a recording.

    A codec that was trained fulfils this for every recording. One that was put together may decode only.
    """
    if acoustic != semantic:
        raise BadInput(
            f"the codec cannot encode speech: its acoustic branch gives {counted(acoustic, 'row')} and its semantic "
            f"branch {semantic}, as their strides differ; give the codec streams of that answer"
        )
