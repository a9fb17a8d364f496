"""The confidence of a network in its output: the probability of an id in its row of logits."""

from __future__ import annotations

import math

import numpy as np


def probabilities(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Returns the softmax probability [T] of one id in each row of logits [T, V].

    The result is NaN for a row with NaN, or with only minus infinity.
    """
    top = logits.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = np.exp(logits - top)
        result: np.ndarray = shares[np.arange(len(ids)), ids] / shares.sum(axis=1)
    return result


def finite_or_none(probability: float) -> float | None:
    """Returns the probability, or None if it is not finite."""
    return probability if math.isfinite(probability) else None
