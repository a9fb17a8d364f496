"""The recordings that are worth a look: those with the highest error rates, and those on which the models differ."""

from __future__ import annotations

import numpy as np

from workbench.evaluation.report.columns import Columns

MAX_RECORDINGS = 20  # recordings of each kind


def worst(columns: Columns) -> list[int]:
    """Returns the rows with the highest rates over all models together; of equal ones those with more errors first."""
    errors = np.nan_to_num(columns.errors()).sum(axis=1)
    units = np.nan_to_num(columns.units()).sum(axis=1)
    order = np.lexsort((np.arange(len(columns)), -errors, -errors / np.maximum(units, 1)))
    return [int(row) for row in order[:MAX_RECORDINGS] if errors[row] > 0]


def most_different(columns: Columns) -> list[int]:
    """Returns the rows on which the rates of two models are farthest apart; none for a single model."""
    if len(columns.models) < 2 or not len(columns):
        return []
    differences = spread(columns)
    errors = columns.errors()
    wide = _range(errors)
    order = np.lexsort((np.arange(len(columns)), -wide, -differences))
    return [int(row) for row in order[:MAX_RECORDINGS] if differences[row] > 0]


def spread(columns: Columns) -> np.ndarray:
    """Returns the highest rate of each utterance minus the lowest, [utterances]; 0 with fewer than two scores."""
    return _range(columns.rates())


def _range(values: np.ndarray) -> np.ndarray:
    is_known = np.isfinite(values)
    high = np.where(is_known, values, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(is_known, values, np.inf).min(axis=1, initial=np.inf)
    return np.where(is_known.sum(axis=1) > 1, high - low, 0.0)
