"""How sure a network is of what it wrote: the probability of an id in its row of logits."""

from __future__ import annotations

import math

import numpy as np


def probabilities(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Returns the softmax probability [T] of one id in each row of logits [T, V].

    A row in which every logit is minus infinity, or one is NaN, gives NaN.
    """
    top = logits.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = np.exp(logits - top)
        found: np.ndarray = shares[np.arange(len(ids)), ids] / shares.sum(axis=1)
    return found


def known(probability: float) -> float | None:
    """Returns the probability, or None where the logits were no numbers."""
    return probability if math.isfinite(probability) else None
