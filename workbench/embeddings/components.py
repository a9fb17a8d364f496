"""Two principal components of embeddings and a model's own vectors: the plane in which both vary most.

Arrays; no models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FITTED = 512  # vectors of each kind that determine the plane; more take seconds and hardly change it


@dataclass(frozen=True, eq=False)
class Components:
    """Vectors of two kinds in one plane."""

    tokens: np.ndarray  # [tokens, 2], float64
    others: np.ndarray  # [rows, 2], float64
    shares: tuple[float, float]  # share of the variance along each axis


def principal(values: np.ndarray, others: np.ndarray) -> Components:
    """Returns the plane of largest variance of values [tokens, hidden] and others [rows, hidden], and both in it.

    Both kinds have the same weight, whatever their numbers, and the origin is the middle between their means. Each axis
    points in the direction in which its strongest channel grows. If all vectors are equal or lie on a line, the
    remaining coordinates are zero.
    """
    kinds = [np.asarray(kind, dtype=np.float64) for kind in (values, others)]
    fitted = [_spread(kind) for kind in kinds if len(kind)]
    if not fitted:
        return Components(np.zeros((0, 2)), np.zeros((0, 2)), (0.0, 0.0))
    # float64, because squares of large float32 values overflow float32.
    centre = np.mean([kind.mean(axis=0) for kind in fitted], axis=0)
    weighted = np.concatenate([(kind - centre) / np.sqrt(len(kind)) for kind in fitted])
    _, sizes, axes = np.linalg.svd(weighted, full_matrices=False)
    plane, powers = np.zeros((2, len(centre))), np.zeros(2)
    count = min(2, len(sizes))
    plane[:count], powers[:count] = axes[:count], sizes[:count] ** 2
    largest = np.take_along_axis(plane, np.abs(plane).argmax(axis=1)[:, None], axis=1)
    plane *= np.where(largest < 0, -1, 1)
    total = float(np.sum(sizes**2))
    first, second = (float(power / total) if total else 0.0 for power in powers)
    tokens, other_coordinates = ((kind - centre) @ plane.T for kind in kinds)
    return Components(tokens, other_coordinates, (first, second))


def _spread(vectors: np.ndarray) -> np.ndarray:
    """Returns at most `FITTED` of the vectors, evenly spaced."""
    return vectors[np.unique(np.linspace(0, len(vectors) - 1, FITTED).astype(int))]
