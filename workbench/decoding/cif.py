"""Continuous integrate-and-fire on numpy arrays: the boundaries of tokens, and the embedding that each token fires.

Dong and Xu, "CIF: Continuous Integrate-and-Fire for End-to-End Speech Recognition", ICASSP 2020. One recording at a
time; T encoder frames, N tokens, D width.
"""

from __future__ import annotations

import numpy as np


def fire(hidden: np.ndarray, alphas: np.ndarray, tokens: int) -> np.ndarray:
    """Returns acoustic embeddings [tokens, D] in hidden's type: sums of frames, weighted by their part in the token.

    If the weight of a frame crosses a whole number, the frame is divided between the two tokens that it touches. The
    weights are summed in float64: in float32 the sum over a long recording is too coarse for an exact division.

    Args:
        hidden: [T, D].
        alphas: weight of each frame [T].
    """
    after = alphas.cumsum(dtype=np.float64)
    before = np.concatenate([[0.0], after])[:-1]
    number = np.arange(tokens)[:, None]
    share = np.minimum(after, number + 1) - np.maximum(before, number)
    embeddings: np.ndarray = share.clip(min=0).astype(hidden.dtype) @ hidden
    return embeddings


def peaks(alphas: np.ndarray, threshold: float) -> np.ndarray:
    """Returns the integrator's value at each frame [T] for weights [T], before `threshold` is subtracted where it
    fires.

    Summed in float64, returned in the weights' type.
    """
    value = 0.0
    found = []
    for alpha in alphas.tolist():
        value += alpha
        found.append(value)
        if value >= threshold:
            value -= threshold
    return np.array(found, dtype=alphas.dtype)
