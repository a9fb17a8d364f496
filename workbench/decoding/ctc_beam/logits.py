"""What a network's CTC head returned, checked and made log-probabilities."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import BadInput, NotFinite

ROWS_AT_ONCE = 64  # they stay in the processor's cache


def log_probabilities(logits: np.ndarray, vocabulary: int) -> np.ndarray:
    """Returns ln P(token) of each frame, float64 [frames, vocabulary], for logits or log-probabilities.

    The values of a frame do not depend on the other frames. An entry may be -inf.

    Raises `BadInput` for another shape, another type, NaN, +inf, or a frame in which every entry is -inf.
    """
    frames = Frames(logits, vocabulary)
    result = np.empty((len(frames), vocabulary))
    for start in range(0, len(frames), ROWS_AT_ONCE):
        frames.read(start, result[start : start + ROWS_AT_ONCE])
    return result


class Frames:
    """The frames of a recording as log-probabilities, computed when they are read.

    Args: as `log_probabilities`. Raises `BadInput` for a shape or type that cannot be used.
    """

    def __init__(self, logits: np.ndarray, vocabulary: int, *, what: str = "the logits"):
        self._logits, self._what = np.asarray(logits), what
        if self._logits.ndim != 2 or self._logits.shape[1] != vocabulary:
            raise BadInput(f"{what} have the shape {list(self._logits.shape)}; expected [frames, {vocabulary}]")
        if self._logits.dtype.kind not in "fiu":
            raise BadInput(f"{what} have the type {self._logits.dtype}; expected real numbers")

    def __len__(self) -> int:
        return len(self._logits)

    def read(self, start: int, rows: np.ndarray) -> np.ndarray:
        """Writes the frames from `start` on into `rows`, float64 [frames, vocabulary], and returns it."""
        rows[:] = self._logits[start : start + len(rows)]
        maximum = rows.max(axis=1, keepdims=True)
        if not np.isfinite(maximum).all():
            frame = int(np.flatnonzero(~np.isfinite(maximum))[0])
            fault = {np.inf: "+inf", -np.inf: "-inf everywhere"}.get(float(maximum[frame, 0]), "NaN")
            clause = f"{self._what} have {fault} in frame {start + frame}"
            raise NotFinite(f"{clause}; expected finite numbers (single -inf are fine)")
        with np.errstate(over="ignore"):  # a difference beyond float64 is -inf, a probability of 0
            rows -= maximum
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
        return rows
