"""Statistics of an embedding: norms of its vectors, zeros, range. Arrays; no models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EmbeddingStatistics:
    """The statistics of an embedding's values [tokens, hidden]."""

    tokens: int
    hidden: int
    lowest: float
    highest: float
    zeros: float  # share of all values
    shortest: float  # Euclidean norm of a token's vector
    median: float  # median of the norms
    longest: float
    repeated: int  # tokens with the same vector as the token before


def statistics_of(values: np.ndarray) -> EmbeddingStatistics:
    """Returns the statistics of values [tokens, hidden] with at least one token."""
    lengths = norms(values)
    return EmbeddingStatistics(
        tokens=values.shape[0],
        hidden=values.shape[1],
        lowest=float(values.min()),
        highest=float(values.max()),
        zeros=1.0 - float(np.count_nonzero(values) / values.size),
        shortest=float(lengths.min()),
        median=float(np.median(lengths)),
        longest=float(lengths.max()),
        repeated=int((values[1:] == values[:-1]).all(axis=1).sum()),
    )


def norms(values: np.ndarray) -> np.ndarray:
    """Returns the Euclidean norm of each vector of values [tokens, hidden], float64 [tokens]."""
    lengths: np.ndarray = np.sqrt(np.einsum("th,th->t", values, values, dtype=np.float64))
    return lengths
