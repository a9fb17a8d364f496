"""Linear CKA: how alike two layers arrange the same rows. Arrays; no models.

Kornblith et al., "Similarity of Neural Network Representations Revisited", ICML 2019, equation 4 with linear kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MAX_ROWS = 512  # rows of a layer that are compared; more take seconds and change the third digit


def cka_matrix(first_layers: Sequence[np.ndarray], second_layers: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the linear CKA of each layer [rows, width] of one list with each of the other, float64 [ones, others].

    Each is from 0 to 1. A rotation, a scale or a shift of a layer does not change it. It is NaN where the rows of a
    layer are all equal. Raises `ValueError` if they do not all have the same number of rows.
    """
    if len({len(layer) for layer in (*first_layers, *second_layers)}) != 1:
        raise ValueError("CKA needs the same rows in every layer")
    first, second = ([_unit_gram(layer) for layer in layers] for layers in (first_layers, second_layers))
    return np.array([[float((a * b).sum()) for b in second] for a in first])


def sampled(rows: int) -> np.ndarray:
    """Returns the indices of at most `MAX_ROWS` of `rows` rows, evenly spread."""
    return np.unique(np.linspace(0, rows - 1, MAX_ROWS).astype(np.int64)) if rows > MAX_ROWS else np.arange(rows)


def _unit_gram(layer: np.ndarray) -> np.ndarray:
    """Returns the products of the centred rows with each other [rows, rows], scaled to norm 1; NaN if all are 0."""
    centred = layer.astype(np.float64)
    centred -= centred.mean(axis=0)
    largest = np.abs(centred).max(initial=0.0)
    gram = (centred / largest if largest else centred) @ (centred / largest if largest else centred).T
    size = np.linalg.norm(gram)
    unit_gram: np.ndarray = gram / size if size else np.full_like(gram, np.nan)
    return unit_gram
