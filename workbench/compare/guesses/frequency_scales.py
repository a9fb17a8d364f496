"""Scales of frequency on which filter banks space their bands: mel, Bark, ERB and Hz itself, and their inverses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

_Function = Callable[[np.ndarray], np.ndarray]

_SLANEY_STEP = np.log(6.4) / 27  # Slaney's scale is straight up to 1000 Hz, 15 mel, and logarithmic from there


def _to_slaney(hertz: np.ndarray) -> np.ndarray:
    return np.where(hertz < 1000, 3 * hertz / 200, 15 + np.log(np.maximum(hertz, 1000) / 1000) / _SLANEY_STEP)


def _from_slaney(mel: np.ndarray) -> np.ndarray:
    return np.where(mel < 15, 200 * mel / 3, 1000 * np.exp(_SLANEY_STEP * (mel - 15)))


def _to_zwicker(hertz: np.ndarray) -> np.ndarray:
    return np.asarray(13 * np.arctan(0.00076 * hertz) + 3.5 * np.arctan(np.square(hertz / 7500)))


@cache
def _zwicker_table() -> tuple[np.ndarray, np.ndarray]:
    hertz = np.arange(0.0, 24000.0, 0.1)
    return _to_zwicker(hertz), hertz


def _from_zwicker(bark: np.ndarray) -> np.ndarray:
    return np.asarray(np.interp(bark, *_zwicker_table()))


_SCALES: dict[str, tuple[str, _Function, _Function]] = {
    "htk": ("the mel scale of HTK", lambda f: 1127 * np.log1p(f / 700), lambda m: 700 * np.expm1(m / 1127)),
    "slaney": ("the mel scale of Slaney", _to_slaney, _from_slaney),
    "bark": (
        "the Bark scale of Traunmüller",
        lambda f: 26.81 * f / (1960 + f) - 0.53,
        lambda z: 1960 * (z + 0.53) / (26.28 - z),
    ),
    "bark_schroeder": (
        "the Bark scale of Schroeder, 6 asinh(f / 600)",
        lambda f: 6 * np.arcsinh(f / 600),
        lambda z: 600 * np.sinh(z / 6),
    ),
    "bark_zwicker": ("the Bark scale of Zwicker", _to_zwicker, _from_zwicker),
    "erb": (
        "the scale of equivalent rectangular bandwidths (ERB)",
        lambda f: 21.4 * np.log10(1 + 0.00437 * f),
        lambda e: (10 ** (e / 21.4) - 1) / 0.00437,
    ),
    "linear": ("bands of equal width in Hz", lambda f: f, lambda f: f),
}
SCALES = tuple(_SCALES)
"""The names of the scales."""


def scale_words(kind: str) -> str:
    """Returns what a scale is called."""
    return _SCALES[kind][0]


def units_of_hertz(hertz: np.ndarray, kind: str) -> np.ndarray:
    """Returns frequencies in Hz in the unit of a scale."""
    return np.asarray(_SCALES[kind][1](hertz))


def hertz_of(units: np.ndarray, kind: str) -> np.ndarray:
    """Returns frequencies in the unit of a scale in Hz."""
    return np.asarray(_SCALES[kind][2](units))
