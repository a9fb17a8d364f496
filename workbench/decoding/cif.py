"""Continuous integrate-and-fire on numpy arrays: where tokens are complete, and the embedding each of them fires.

Dong and Xu, "CIF: Continuous Integrate-and-Fire for End-to-End Speech Recognition", ICASSP 2020. One recording at a
time; T encoder frames, N tokens, D width.
"""

from __future__ import annotations

import numpy as np


def fire(hidden: np.ndarray, alphas: np.ndarray, tokens: int) -> np.ndarray:
    """Acoustic embeddings [tokens, D], of hidden's type: each the sum of frames weighted by their part in its unit.

    A frame whose weight straddles a whole number is shared between the two tokens it touches. The weights are summed in
    float64: in float32 the sum of a long recording is too coarse to be shared out exactly.

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
    """The integrator's value at each frame [T] of weights [T], before it gives `threshold` away where it reaches it.

    Summed in float64, and of the weights' type.
    """
    value = 0.0
    found = []
    for alpha in alphas.tolist():
        value += alpha
        found.append(value)
        if value >= threshold:
            value -= threshold
    return np.array(found, dtype=alphas.dtype)
