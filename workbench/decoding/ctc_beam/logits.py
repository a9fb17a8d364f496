"""What a network's CTC head returned, checked and made log-probabilities."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import BadInput

ROWS_AT_ONCE = 64  # they stay in the processor's cache


def log_probabilities(logits: np.ndarray, vocabulary: int, *, what: str = "the logits") -> np.ndarray:
    """Returns ln P(token) of each frame, float64 [frames, vocabulary], for logits or log-probabilities.

    The values of a frame do not depend on the other frames. An entry may be -inf.

    Raises `BadInput` for another shape, values that are no numbers, NaN, +inf, or a frame in which every entry is -inf.
    """
    given = np.asarray(logits)
    if given.ndim != 2 or given.shape[1] != vocabulary:
        raise BadInput(f"{what} have the shape {list(given.shape)}; expected [frames, {vocabulary}]")
    if given.dtype.kind not in "fiu":
        raise BadInput(f"{what} have the type {given.dtype}; expected real numbers")
    result = given.astype(np.float64, order="C")  # a copy
    for start in range(0, len(result), ROWS_AT_ONCE):
        rows = result[start : start + ROWS_AT_ONCE]
        most = rows.max(axis=1, keepdims=True)
        if not np.isfinite(most).all():
            frame = int(np.flatnonzero(~np.isfinite(most))[0])
            bad = {np.inf: "+inf", -np.inf: "-inf everywhere"}.get(float(most[frame, 0]), "NaN")
            raise BadInput(
                f"{what} have {bad} in frame {start + frame}; expected finite numbers (single -inf are fine)"
            )
        rows -= most
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return result
