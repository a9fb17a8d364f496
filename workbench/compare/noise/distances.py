"""Distances of a stage from the same stage in float64: whole stage, median and worst position, and each channel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.compare.measures import as_table, measure

_MIN_SIZE_SHARE = 0.01  # share of the usual size; relative errors of smaller positions have no meaning
_BLOCK_VALUES = 1 << 22  # values that are sorted at a time
_AMPLIFIED = 2.0  # multiple of the median error from which a position does not count for `steady`


@dataclass(frozen=True)
class Distances:
    """The relative L2 of the difference from float64."""

    whole: float
    typical: float  # of the median position, without positions of zeros
    worst: float  # of the worst position; smaller positions count with a hundredth of the usual size
    position: int = 0  # the worst position


def distances(truth: Any, side: Any) -> Distances:
    """Returns the distances of a side.

    For a one-dimensional stage, all three distances are the same; for another shape, they are infinite.
    """
    if truth.shape != side.shape:
        return Distances(math.inf, math.inf, math.inf)
    measures = measure(truth, side)
    relative_l2 = math.inf if measures.nonfinite_differences else measures.relative_l2
    if truth.ndim < 2 or not measures.values or math.isinf(relative_l2):
        return Distances(relative_l2, relative_l2, relative_l2)
    sizes = _sizes(truth)
    has_size = np.isfinite(sizes) & (sizes > 0)
    if not has_size.any():
        return Distances(relative_l2, relative_l2, relative_l2)
    typical = float(np.median(measures.by_position[has_size] / sizes[has_size]))
    relative = np.where(
        has_size, measures.by_position / np.maximum(sizes, _MIN_SIZE_SHARE * measures.reference_rms), 0.0
    )
    worst = int(relative.argmax())
    return Distances(relative_l2, typical, float(relative[worst]), worst)


def by_channel(truth: Any, side: Any) -> np.ndarray | None:
    """Returns the median over positions of |difference| / root mean square of the position, by channel: [channels].

    Returns None without channels or for different shapes. The median ignores the few positions where a network
    amplifies any rounding; an error in a channel shows at every position.
    """
    if truth.shape != side.shape or truth.ndim < 2 or not truth.size:
        return None
    sizes = _sizes(truth)
    has_size = np.isfinite(sizes) & (sizes > 0)
    truth_table, side_table = (as_table(each).reshape(len(truth), -1) for each in (truth, side))
    channels, height = truth_table.shape[1], max(1, _BLOCK_VALUES // len(truth))
    if not has_size.any():
        return None
    medians = np.empty(channels)
    for start in range(0, channels, height):
        block = slice(start, start + height)
        errors = np.abs(
            side_table[has_size, block].astype(np.float64) - truth_table[has_size, block].astype(np.float64)
        )
        medians[block] = np.median(errors / sizes[has_size, None], axis=0)
    return medians


def steady(truth: Any, side: Any) -> float:
    """Returns the root mean square over channels of the mean error over positions, in units of a position's size.

    Rounding errors of many positions cancel out in the mean. An error that is the same at every position, such as that
    of a wrong activation or a wrong epsilon, stays. Positions with more than `_AMPLIFIED` times the usual error do not
    count: there the network amplifies rounding. Returns 0 without positions, and infinity for another shape.
    """
    if truth.shape != side.shape:
        return math.inf
    if truth.ndim < 2 or not truth.size:
        return 0.0
    sizes = _sizes(truth)
    nonzero_rows = np.flatnonzero(np.isfinite(sizes) & (sizes > 0))
    if not nonzero_rows.size:
        return 0.0
    truth_table, side_table = (as_table(each).reshape(len(truth), -1) for each in (truth, side))
    height = max(1, _BLOCK_VALUES // truth_table.shape[1])
    blocks = [nonzero_rows[start : start + height] for start in range(0, len(nonzero_rows), height)]
    errors = np.concatenate(
        [np.sqrt(np.mean(_relative_differences(truth_table, side_table, sizes, rows) ** 2, axis=1)) for rows in blocks]
    )
    is_usual = errors <= _AMPLIFIED * np.median(errors)
    total, first_index = np.zeros(truth_table.shape[1]), 0
    for rows in blocks:
        usual_rows = rows[is_usual[first_index : first_index + len(rows)]]
        first_index += len(rows)
        total += _relative_differences(truth_table, side_table, sizes, usual_rows).sum(axis=0)
    return float(np.sqrt(np.mean((total / max(int(is_usual.sum()), 1)) ** 2)))


def _relative_differences(
    truth_table: np.ndarray, side_table: np.ndarray, sizes: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Returns the differences of some positions in units of their sizes."""
    relative: np.ndarray = (side_table[rows].astype(np.float64) - truth_table[rows].astype(np.float64)) / sizes[
        rows, None
    ]
    return relative


def _sizes(truth: Any) -> np.ndarray:
    """Returns the root mean square of each position."""
    rows = as_table(truth).reshape(len(truth), -1)
    sizes: np.ndarray = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64) / rows.shape[1])
    return sizes
