"""Attention rollout: how much of each input row reaches each output row through all layers. Arrays; no models.

Abnar and Zuidema, "Quantifying Attention Flow in Transformers", ACL 2020: the weights of a layer are averaged over its
heads, half of a row stays where it is (the residual connection), and the layers are multiplied.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

RESIDUAL = 0.5  # part of a row that a layer leaves where it is, as in the paper


def rollout(layers: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the rollout [rows, rows] of weights [heads, rows, rows], first layer first; every row sums to 1.

    Raises `ValueError` if there is no layer.
    """
    product: np.ndarray | None = None
    for weights in layers:
        mean = weights.astype(np.float64).mean(axis=0)
        mean /= mean.sum(axis=1, keepdims=True)  # half precision leaves sums beside 1
        step = RESIDUAL * np.eye(len(mean)) + (1 - RESIDUAL) * mean
        product = step if product is None else step @ product
    if product is None:
        raise ValueError("rollout needs a layer")
    return product
