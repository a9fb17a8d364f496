"""Softmax over the last axis of arrays."""

from __future__ import annotations

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities of logits [..., choices], in their type; they sum to 1 over the last axis."""
    probabilities: np.ndarray = logits - logits.max(axis=-1, keepdims=True)
    np.exp(probabilities, out=probabilities)
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    return probabilities


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the natural logarithms of the softmax of logits [..., choices], in their type."""
    shifted: np.ndarray = logits - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted
