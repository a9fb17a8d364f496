"""Continuous integrate-and-fire on numpy arrays: the boundaries of tokens, and the embedding that each token fires.

Dong and Xu, "CIF: Continuous Integrate-and-Fire for End-to-End Speech Recognition", ICASSP 2020. One recording at a
time; T encoder frames, N tokens, D width.
"""

from __future__ import annotations

import numpy as np


def fire(hidden: np.ndarray, alphas: np.ndarray, tokens: int) -> np.ndarray:
    """Returns acoustic embeddings [tokens, D] in the type of `hidden`: weighted sums of the frames of each token.

    If the sum of the weights crosses a whole number within a frame, the frame's weight is divided between the two
    tokens. The sum is in float64: in float32, it is too coarse for an exact division in a long recording.

    Args:
        hidden: [T, D].
        alphas: weight of each frame [T].
    """
    sums = alphas.cumsum(dtype=np.float64)
    previous_sums = np.concatenate([[0.0], sums])[:-1]
    number = np.arange(tokens)[:, None]
    share = np.minimum(sums, number + 1) - np.maximum(previous_sums, number)
    embeddings: np.ndarray = share.clip(min=0).astype(hidden.dtype) @ hidden
    return embeddings


def peaks(alphas: np.ndarray, threshold: float) -> np.ndarray:
    """Returns the integrator's value at each frame [T] for the weights [T].

    In a frame that fires, it is the value before `threshold` is subtracted. The sum is in float64, the result in the
    type of the weights.
    """
    value = 0.0
    values = []
    for alpha in alphas.tolist():
        value += alpha
        values.append(value)
        if value >= threshold:
            value -= threshold
    return np.array(values, dtype=alphas.dtype)
