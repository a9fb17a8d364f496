"""Measures how far one array of numbers is from another, in one pass over both.

All sums are accumulated in float64 over blocks of rows, so neither array is copied as a whole. Positions are axis 0,
channels the last axis. A value that is infinite or NaN on both sides in the same way is left out of the measures. A
value that is so on one side only, or in different ways, is counted separately, because no measure can include it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BLOCK_VALUES = 1 << 16  # values of each array at a time, so that float64 copies stay in the processor's cache
_MIN_SCALE, _MAX_SCALE = 1e-200, 1e200  # outside these sums of squares, some squares may have under- or overflowed
_TINY = 1e-6  # smaller cosine distances lose too many digits if they are computed from the cosine


@dataclass(frozen=True)
class Worst:
    """The element with the largest difference."""

    index: tuple[int, ...]
    reference: float
    candidate: float


@dataclass(frozen=True)
class Measures:
    """The difference of a candidate from a reference of the same shape, d = candidate - reference."""

    values: int  # number of compared values
    max_abs: float  # largest |d|
    mean_abs: float
    relative_l2: float  # ||d|| / ||reference||; infinite if only the reference is all zeros
    snr_db: float  # 20 log10(||reference|| / ||d||): infinite for equal arrays
    cosine_distance: float  # 1 - cosine of the angle between the two, accurate even if tiny
    peak: float  # max_abs / root mean square of the reference
    factor: float  # the multiple of the reference that is nearest to the candidate
    factor_residual: float  # relative L2 that remains after division by that factor
    reference_rms: float
    worst: Worst | None  # None if nothing differs
    reference_nonfinite: int
    candidate_nonfinite: int
    nonfinite_differences: int  # places that are finite on one side only, or not finite in different ways
    by_position: np.ndarray = field(repr=False, compare=False)  # root mean square of d in each row, [positions]
    by_channel: np.ndarray = field(repr=False, compare=False)  # the same in each column, [channels]

    @property
    def cosine(self) -> float:
        """The cosine of the angle between the two arrays: 1 for the same direction."""
        return 1.0 - self.cosine_distance

    @property
    def identical(self) -> bool:
        """Whether every value is the same; zeros of either sign are equal."""
        return self.max_abs == 0 and not self.nonfinite_differences


@dataclass
class _Sums:
    by_row: np.ndarray  # sums of squares of the difference
    by_column: np.ndarray
    counted_rows: np.ndarray  # number of values in each
    counted_columns: np.ndarray
    difference: float = 0.0  # sum of squares
    reference: float = 0.0
    candidate: float = 0.0
    product: float = 0.0
    absolute: float = 0.0
    largest: float = 0.0
    at: int = -1  # flat index of the largest
    values: int = 0
    reference_nonfinite: int = 0
    candidate_nonfinite: int = 0
    nonfinite_differences: int = 0


def as_table(array: np.ndarray) -> np.ndarray:
    """Returns the array as [positions, channels] of real numbers; middle axes count as positions.

    Complex numbers become pairs of real numbers.
    """
    if array.dtype.kind == "c":
        array = np.ascontiguousarray(array).view(array.real.dtype.str)
    if array.ndim == 1:
        return array[:, None]
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1]) if array.ndim else array.reshape(1, 1)


def measure(reference: np.ndarray, candidate: np.ndarray) -> Measures:
    """Returns the measures of two arrays of one shape [..., channels] and any numeric types.

    Raises `ValueError` for different shapes.
    """
    if reference.shape != candidate.shape:
        raise ValueError(f"shapes {reference.shape} and {candidate.shape} differ")
    reference_table, candidate_table = as_table(reference), as_table(candidate)
    if reference_table.shape != candidate_table.shape:  # one is complex, the other real
        reference_table, candidate_table = (
            as_table(reference.astype(np.complex128)),
            as_table(candidate.astype(np.complex128)),
        )
    scale = 1.0
    sums = _summed(reference_table, candidate_table, scale)
    if not all(_MIN_SCALE < each < _MAX_SCALE for each in (sums.reference, sums.candidate)):
        scale = _scale_of(reference_table, candidate_table)
        sums = sums if scale == 1 else _summed(reference_table, candidate_table, scale)
    return _measures(sums, scale, reference, candidate)


def _summed(reference: np.ndarray, candidate: np.ndarray, scale: float) -> _Sums:
    """Returns the sums over two tables of one shape, multiplied by a scale."""
    rows, columns = reference.shape
    sums = _Sums(np.zeros(rows), np.zeros(columns), np.zeros(rows), np.zeros(columns))
    height = max(1, BLOCK_VALUES // max(columns, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, rows if columns else 0, height):
            block = slice(start, start + height)
            r = reference[block].astype(np.float64)
            c = candidate[block].astype(np.float64)
            if scale != 1:
                r *= scale
                c *= scale
            finite_mask = _zero_nonfinite(r, c, sums)
            d = np.subtract(c, r)
            sums.reference += _product(r, r)
            sums.candidate += _product(c, c)
            sums.product += _product(r, c)
            square = np.multiply(d, d, out=c)
            sums.by_row[block] = square.sum(axis=1)
            sums.by_column += square.sum(axis=0)
            sums.counted_rows[block] = columns if finite_mask is None else finite_mask.sum(axis=1)
            sums.counted_columns += len(d) if finite_mask is None else finite_mask.sum(axis=0)
            np.abs(d, out=d)
            sums.absolute += float(d.sum())
            index = int(d.argmax())
            if d.flat[index] > sums.largest:
                sums.largest, sums.at = float(d.flat[index]), start * columns + index
            sums.values += d.size if finite_mask is None else int(finite_mask.sum())
    sums.difference = float(sums.by_row.sum())
    return sums


def _scale_of(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Returns a power of two that scales the largest finite value to about one, so that squares do not overflow."""
    largest = 0.0
    height = max(1, BLOCK_VALUES // max(reference.shape[1], 1))
    for table in (reference, candidate):
        for start in range(0, len(table), height):
            block = np.abs(table[start : start + height].astype(np.float64))
            largest = max(largest, float(block.max(initial=0.0, where=np.isfinite(block))))
    return math.ldexp(1.0, -min(max(math.frexp(largest)[1], -1000), 1000)) if largest else 1.0


def _measures(sums: _Sums, scale: float, reference: np.ndarray, candidate: np.ndarray) -> Measures:
    by_row, counted_rows = sums.by_row, sums.counted_rows
    positions = reference.shape[0] if reference.ndim else 1
    if positions and len(by_row) > positions:  # with more than two axes, a position has several rows
        by_row, counted_rows = (each.reshape(positions, -1).sum(axis=1) for each in (by_row, counted_rows))
    with np.errstate(over="ignore"):
        by_position = np.sqrt(by_row / np.maximum(counted_rows, 1)) / scale
        by_channel = np.sqrt(sums.by_column / np.maximum(sums.counted_columns, 1)) / scale
    return Measures(
        **_ratios(sums, scale),
        worst=_worst(sums.at, reference, candidate) if sums.at >= 0 else None,
        reference_nonfinite=sums.reference_nonfinite,
        candidate_nonfinite=sums.candidate_nonfinite,
        nonfinite_differences=sums.nonfinite_differences,
        by_position=by_position,
        by_channel=by_channel,
    )


def _product(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the sum of the products of two blocks.

    Does not use BLAS: on busy processors its threads wait for each other far longer than they compute.
    """
    return float(np.einsum("ij,ij->", first, second))


def _zero_nonfinite(r: np.ndarray, c: np.ndarray, sums: _Sums) -> np.ndarray | None:
    """Sets the places to zero where either side is not finite; returns the mask of the other places, None for all."""
    if math.isfinite(float(r.sum() + c.sum())):
        return None
    finite, candidate_finite = np.isfinite(r), np.isfinite(c)
    sums.reference_nonfinite += int(finite.size - finite.sum())
    sums.candidate_nonfinite += int(candidate_finite.size - candidate_finite.sum())
    is_equal = (r == c) | (np.isnan(r) & np.isnan(c))
    finite &= candidate_finite
    sums.nonfinite_differences += int((~finite & ~is_equal).sum())
    r[~finite] = 0.0
    c[~finite] = 0.0
    return finite


def _ratios(sums: _Sums, scale: float) -> dict[str, Any]:
    difference, reference, candidate = (math.sqrt(x) for x in (sums.difference, sums.reference, sums.candidate))
    values = max(sums.values, 1)
    rms = reference / math.sqrt(values)
    relative = difference / reference if reference else math.inf if difference else 0.0
    if reference and candidate:
        distance = 1 - sums.product / (reference * candidate)
        if distance < _TINY and difference**2 < reference * candidate:
            # ||d||^2 = (||c|| - ||r||)^2 + 2 ||c|| ||r|| (1 - cosine); 1 - 0.9999999 would lose digits. If one
            # array is far longer than the other, the difference of squares would lose more.
            distance = (difference**2 - (candidate - reference) ** 2) / (2 * reference * candidate)
        distance = min(max(distance, 0.0), 2.0)
    else:
        distance = 1.0 if reference or candidate else 0.0
    factor = sums.product / sums.reference if sums.reference else 1.0
    return {
        "values": sums.values,
        "max_abs": sums.largest / scale,
        "mean_abs": sums.absolute / values / scale,
        "relative_l2": relative,
        "snr_db": 0.0 - 20 * math.log10(relative) if relative else math.inf,
        "cosine_distance": distance,
        "peak": sums.largest / rms if rms else math.inf if sums.largest else 0.0,
        "factor": factor,
        "factor_residual": math.sqrt(distance * (2 - distance)) if reference and candidate else relative,
        "reference_rms": rms / scale,
    }


def _worst(flat: int, reference: np.ndarray, candidate: np.ndarray) -> Worst:
    if reference.dtype.kind == "c" or candidate.dtype.kind == "c":
        flat //= 2  # a complex number is two real ones
    index = tuple(int(i) for i in np.unravel_index(flat, reference.shape)) if reference.ndim else ()
    return Worst(index, float(np.real(reference[index])), float(np.real(candidate[index])))
