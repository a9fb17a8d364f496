"""Explains why an array may have another shape or other numbers than the reference.

Each guess is tried on the numbers. The result names the guess under which the two arrays are nearest, with the
remaining error. This file compares arrays; it knows no stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from workbench.compare.measures import Measures, measure

_MUCH_NEARER = 0.1  # a guess is named if at most this share of the error remains
_NEAR = 0.5  # relative L2 above which two arrays have nothing in common
_TRIED_VALUES = 1 << 22  # of larger arrays, only the first rows are compared
_MOST_REORDERED = 64  # rows; each is compared with each
_FITTED_ROWS = 8  # with fewer rows, a fit may succeed by chance
_FEW = 0.1  # share of all rows or channels

Guess = tuple[str, np.ndarray, np.ndarray]


def shapes(reference: np.ndarray, candidate: np.ndarray) -> str:
    """Returns both shapes in words: `740×512 and 512×740`."""
    return " and ".join("×".join(map(str, array.shape)) or "a scalar" for array in (reference, candidate))


def explain_shape(reference: np.ndarray, candidate: np.ndarray) -> str:
    """Returns why the candidate may have another shape than the reference, as one sentence without a full stop."""
    said = f"the shapes are {shapes(reference, candidate)}"
    best: tuple[float, str] | None = None
    fits = ""
    for words, one, other in _guesses(reference, candidate):
        fits = fits or words
        if one.size and (best is None or _left(one, other) < best[0]):
            best = _left(one, other), words
    if best and best[0] <= _NEAR:
        return f"{said}: {best[1]}; after this change they differ by {_percent(best[0])}"
    if fits:
        return f"{said}, as if {fits}, but after this change the numbers differ too"
    if reference.ndim != candidate.ndim:
        return f"{said}: the reference has {reference.ndim} dimensions, the candidate {candidate.ndim}"
    axes = [n for n, (a, b) in enumerate(zip(reference.shape, candidate.shape)) if a != b]
    counts = ", ".join(f"{reference.shape[n]} and {candidate.shape[n]} along axis {n}" for n in axes)
    return f"{said}: {counts}"


def explain_numbers(reference: np.ndarray, candidate: np.ndarray, found: Measures) -> str | None:
    """Returns what may have happened to an array of the right shape; None if no simple change explains it."""
    if not found.relative_l2 or not math.isfinite(found.relative_l2) or found.nonfinite_differences:
        return None
    enough = _MUCH_NEARER * min(found.relative_l2, 1.0)
    if found.factor_residual <= enough and found.factor:
        beside = _percent(found.factor_residual)
        return f"it is {found.factor:.6g} times the reference, and otherwise differs by {beside}"
    if reference.ndim != 2 or reference.dtype.kind == "c":
        return None
    for words, one, other in _rearranged(reference, candidate):
        if (left := _left(one, other)) <= enough:
            return f"{words}, and otherwise differs by {_percent(left)}"
    if place := _reordered(reference, candidate, found, enough) or _concentrated(found):
        return place
    if (left := _affine_left(reference, candidate)) <= enough:
        return (
            "each channel is a multiple of the reference's plus a constant, as where CMVN or a norm is left out or "
            f"done twice, and otherwise it differs by {_percent(left)}"
        )
    return None


def _rearranged(reference: np.ndarray, candidate: np.ndarray) -> Iterator[Guess]:
    """Yields possible changes of order in an array of the right shape, each with the arrays to compare then."""
    rows, columns = reference.shape
    if rows == columns and rows > 1:
        yield "it is transposed", reference.T, candidate
    if rows > 2:
        yield "its rows come one position late", reference[:-1], candidate[1:]
        yield "its rows come one position early", reference[1:], candidate[:-1]
    if rows > 1:
        yield "its rows are in reverse order", reference[::-1], candidate


def _reordered(reference: np.ndarray, candidate: np.ndarray, found: Measures, enough: float) -> str | None:
    """Returns the description of a permutation, if the few rows that differ are in each other's places; else None."""
    rows = _standing_out(found.by_position)
    if not 2 <= len(rows) <= _MOST_REORDERED:
        return None
    one, other = reference[rows].astype(np.float64), candidate[rows].astype(np.float64)
    # The nearest row for each, without an array of all differences.
    order = ((one * one).sum(axis=1) - 2 * other @ one.T).argmin(axis=1)
    if len(set(order.tolist())) < len(rows) or _left(one[order], other) > enough:
        return None
    return f"rows {_listed(rows)} hold what the reference has in rows {_listed(rows[order])}"


def _affine_left(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Returns the relative L2 that remains if each channel is fitted by a factor and a constant."""
    if len(reference) < _FITTED_ROWS:
        return math.inf
    most = max(_FITTED_ROWS, _TRIED_VALUES // max(reference.shape[1], 1))
    r, c = (side[:most].astype(np.float64) for side in (reference, candidate))
    r -= r.mean(axis=0)
    c -= c.mean(axis=0)
    variance = (r * r).sum(axis=0)
    factor = np.divide((r * c).sum(axis=0), variance, out=np.zeros_like(variance), where=variance > 0)
    size = float(np.linalg.norm(c))
    return float(np.linalg.norm(c - factor * r)) / size if size and np.any(factor) else math.inf


def _concentrated(found: Measures) -> str | None:
    """Returns where the difference is, if only a few rows or channels differ; else None."""
    for errors, what in ((found.by_position, "row"), (found.by_channel, "channel")):
        places = _standing_out(errors)
        if len(places) <= _FEW * len(errors):
            many = f"{what} {places[0]} differs" if len(places) == 1 else f"{what}s {_listed(places)} differ"
            return f"of {len(errors)} {what}s, only {many}"
    return None


def _standing_out(errors: np.ndarray) -> np.ndarray:
    """Returns the places with nearly all of the error: those above a hundredth of the largest."""
    return np.flatnonzero(errors > 0.01 * errors.max(initial=0.0))


def _listed(places: np.ndarray, most: int = 8) -> str:
    shown = ", ".join(map(str, places[:most].tolist()))
    return f"{shown} and {len(places) - most} more" if len(places) > most else shown


def _guesses(reference: np.ndarray, candidate: np.ndarray) -> Iterator[Guess]:
    """Yields changes that give the candidate the reference's shape, each with the arrays to compare then."""
    if reference.ndim == candidate.ndim == 2 and reference.shape == candidate.shape[::-1]:
        yield "the candidate is transposed", reference, candidate.T
    if reference.ndim != candidate.ndim:
        one, other = np.squeeze(reference), np.squeeze(candidate)
        if one.shape == other.shape:
            side = "reference" if reference.ndim > candidate.ndim else "candidate"
            yield f"the {side} has a dimension of 1 more, such as a batch", one, other
        elif one.shape == other.shape[::-1]:
            yield "one has a dimension of 1 more, and is transposed", one, other.T
    if reference.ndim == candidate.ndim:
        axes = [n for n, (a, b) in enumerate(zip(reference.shape, candidate.shape)) if a != b]
        if len(axes) == 1:
            yield from _longer(reference, candidate, axes[0])
    if reference.size == candidate.size and reference.ndim and candidate.ndim:
        yield (
            "the same number of values is laid out in another shape",
            reference.reshape(-1),
            np.ascontiguousarray(candidate).reshape(-1),
        )


def _longer(reference: np.ndarray, candidate: np.ndarray, axis: int) -> Iterator[Guess]:
    extra = candidate.shape[axis] - reference.shape[axis]
    side, long, short = ("candidate", candidate, reference) if extra > 0 else ("reference", reference, candidate)
    extra = abs(extra)
    what = {0: "row", reference.ndim - 1: "column"}.get(axis, f"entry of axis {axis}")
    if reference.ndim == 1:
        what = "value"
    many = f"{extra} {what if extra == 1 else what.replace('entry', 'entries') + ('s' if what[-1] != '0' else '')}"
    length = short.shape[axis]
    for end, kept, rest in (
        ("end", slice(0, length), slice(length, None)),
        ("beginning", slice(extra, None), slice(0, extra)),
    ):
        index = tuple(kept if n == axis else slice(None) for n in range(long.ndim))
        other = tuple(rest if n == axis else slice(None) for n in range(long.ndim))
        padded = " of zeros, padding," if not np.any(long[other]) else ""
        words = f"the {side} has {many} more{padded} at the {end}"
        yield (words, short, long[index]) if side == "candidate" else (words, long[index], short)


def _left(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the relative L2 of two arrays of one shape, or of their first rows; infinite without numbers."""
    if one.ndim and one.size > _TRIED_VALUES:
        rows = max(1, _TRIED_VALUES * len(one) // one.size)
        one, other = one[:rows], other[:rows]
    found = measure(one, other)
    return math.inf if found.nonfinite_differences else found.relative_l2


def _percent(relative: float) -> str:
    return f"{100 * relative:.2g} %"
