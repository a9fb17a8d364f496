"""Embeddings and a model's own vectors in the plane where they differ most: two principal components of both.

Arrays; no models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FITTED = 512  # vectors of either kind that the plane is computed from; more would take seconds and turn it little


@dataclass(frozen=True, eq=False)
class Components:
    """Vectors of two kinds in one plane."""

    tokens: np.ndarray  # [tokens, 2], float64
    others: np.ndarray  # [rows, 2], float64
    shares: tuple[float, float]  # of the variance, along each of the two axes


def principal(values: np.ndarray, others: np.ndarray) -> Components:
    """The plane of largest variance of values [tokens, hidden] and others [rows, hidden], and both in it.

    Both kinds weigh the same however many there are of either, and the middle between their means is the origin. Each
    axis points to where the channel with the largest part in it grows. Where all vectors are the same, or lie on a
    line, what is left of the plane is zero.
    """
    kinds = [np.asarray(kind, dtype=np.float64) for kind in (values, others)]
    fitted = [_spread(kind) for kind in kinds if len(kind)]
    if not fitted:
        return Components(np.zeros((0, 2)), np.zeros((0, 2)), (0.0, 0.0))
    # A square of what is large in float32 fits into float64.
    centre = np.mean([kind.mean(axis=0) for kind in fitted], axis=0)
    weighted = np.concatenate([(kind - centre) / np.sqrt(len(kind)) for kind in fitted])
    _, sizes, axes = np.linalg.svd(weighted, full_matrices=False)
    plane, powers = np.zeros((2, len(centre))), np.zeros(2)
    found = min(2, len(sizes))
    plane[:found], powers[:found] = axes[:found], sizes[:found] ** 2
    largest = np.take_along_axis(plane, np.abs(plane).argmax(axis=1)[:, None], axis=1)
    plane *= np.where(largest < 0, -1, 1)
    whole = float(np.sum(sizes**2))
    first, second = (float(power / whole) if whole else 0.0 for power in powers)
    tokens, rest = ((kind - centre) @ plane.T for kind in kinds)
    return Components(tokens, rest, (first, second))


def _spread(vectors: np.ndarray) -> np.ndarray:
    """At most so many of the vectors, evenly spread over them."""
    return vectors[np.unique(np.linspace(0, len(vectors) - 1, FITTED).astype(int))]
