"""Rotations of rotary positions: their layouts, and the angles and the base that two stages show.

A rotary embedding turns pairs of channels of each head by an angle that grows with the position. Source: Su et al.,
RoFormer (2021).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.compare.guesses.guess import is_close

BASES = (10000.0, 500000.0, 1000000.0, 100000.0, 50000.0, 20000.0, 5000000.0, 1000.0)
SHIFTS = (1, -1, 2, -2)
MIN_RATE = 1e-3  # radians in a row that can be read off
SAME_ANGLES = 1e-4
Complex = np.ndarray
"""[rows, heads, pairs]: the two channels of a pair as one complex number."""


def round_bases(angles: Complex) -> list[float]:
    """Returns round numbers near the base that the angles of the first two rows show; empty if they show none."""
    rates = np.angle(angles[1] * angles[0].conj())
    pairs = len(rates)
    measurable = np.flatnonzero((rates > MIN_RATE) & (np.arange(pairs) > 0))
    if not len(measurable):
        return []
    base = float(np.exp(np.median(-np.log(rates[measurable]) * pairs / measurable)))
    return [float(f"{base:.{digits}g}") for digits in (1, 2, 3)] if 10 < base < 1e12 else []


def base_of(angles: Complex) -> float | None:
    """Returns the round base that gives these angles; None without one."""
    count, pairs = angles.shape
    for base in (*BASES, *round_bases(angles)):
        rotations = np.exp(1j * np.arange(count)[:, None] * base ** (-np.arange(pairs) / pairs))
        if is_close(rotations.view(np.float64), np.ascontiguousarray(angles).view(np.float64), SAME_ANGLES):
            return base
    return None


def _halves(x: np.ndarray) -> Complex:
    real, imaginary = np.split(x, 2, axis=-1)
    return np.asarray(real + 1j * imaginary)


def _unhalved(pairs: Complex) -> np.ndarray:
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def _neighbours(x: np.ndarray) -> Complex:
    return np.asarray(x[..., 0::2] + 1j * x[..., 1::2])


def _unneighboured(pairs: Complex) -> np.ndarray:
    channels = np.empty((*pairs.shape[:-1], 2 * pairs.shape[-1]))
    channels[..., 0::2], channels[..., 1::2] = pairs.real, pairs.imag
    return channels


LAYOUTS: dict[str, tuple[Callable[[np.ndarray], Complex], Callable[[Complex], np.ndarray]]] = {
    "halves": (_halves, _unhalved),
    "neighbours": (_neighbours, _unneighboured),
}
LAYOUT_WORDS = {
    "halves": "channels of the two halves of a head together",
    "neighbours": "neighbouring channels together",
}


def angles_between(layout: str, before: np.ndarray, after: np.ndarray) -> Complex:
    """Returns e^(i angle) for each row and pair, from all heads together."""
    pairs_before, pairs_after = (LAYOUTS[layout][0](np.asarray(side, np.float64)) for side in (before, after))
    products = (pairs_after * pairs_before.conj()).sum(axis=1)
    with np.errstate(all="ignore"):
        return np.where(np.abs(products) > 0, products / np.abs(products), 1.0)


def turns(layout: str, before: np.ndarray, after: np.ndarray, allowed: float) -> bool:
    """Returns whether one angle for each row and pair, the same in all heads, turns one array into the other."""
    pairs = LAYOUTS[layout][0](np.asarray(before, np.float64)) * angles_between(layout, before, after)[:, None]
    return is_close(LAYOUTS[layout][1](pairs), np.asarray(after, np.float64), allowed)
