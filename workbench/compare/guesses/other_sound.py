"""Tells whether two front ends heard different recordings, by how their loudness changes over time.

A wrong filter bank of the right recording still follows its loudness: with another window, scale, mel bank or distance
between frames the correlation is above 0.9. Of two recordings it stays below 0.8 wherever one is laid upon the other.
"""

from __future__ import annotations

import numpy as np

FRONT_END = ("frontend.fbank", "frontend.lfr", "frontend.features")
_SAME_SOUND = 0.85  # correlation above which the loudness is that of the same sound
_MIN_ROWS = 20  # of fewer, two recordings may correlate by chance
_MIN_OVERLAP = 2 / 3  # of the shorter side


def of_another_recording(reference: np.ndarray, candidate: np.ndarray) -> str | None:
    """Returns a clause about a candidate whose loudness is not the reference's; None if it is, or cannot be told.

    Args:
        reference: a stage of the front end [frames, channels], as is `candidate`, with any number of frames.
    """
    if reference.ndim != 2 or reference.shape[1:] != candidate.shape[1:]:
        return None
    if min(len(reference), len(candidate)) < _MIN_ROWS:
        return None
    loudness = [np.asarray(side, np.float64).mean(axis=1) for side in (reference, candidate)]
    if not all(np.isfinite(each).all() and np.ptp(each) > 0 for each in loudness):
        return None
    correlation = max(_largest_correlation(*loudness), _correlation_when_stretched(*loudness))
    if correlation > _SAME_SOUND:
        return None
    return (
        f"its loudness over time is not the reference's (correlation {correlation:.2f} at most), as if it was computed "
        "on another recording"
    )


def _correlation_when_stretched(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Returns the correlation if both last equally long, as with another distance between frames."""
    places = np.linspace(0, len(candidate) - 1, len(reference))
    stretched = np.interp(places, np.arange(len(candidate)), candidate)
    sides = [each - each.mean() for each in (reference, stretched)]
    size = float(np.linalg.norm(sides[0]) * np.linalg.norm(sides[1]))
    return abs(float(sides[0] @ sides[1])) / size if size > 0 else 1.0


def _largest_correlation(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Returns the largest correlation over all places at which one side may be laid upon the other."""
    reference, candidate = reference - reference.mean(), candidate - candidate.mean()
    total = len(reference) + len(candidate) - 1
    size = 1 << (total - 1).bit_length()

    def sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        spectrum = np.fft.rfft(a, size) * np.fft.rfft(b[::-1], size)
        values: np.ndarray = np.fft.irfft(spectrum, size)[:total]
        return values

    ones = np.ones_like(reference), np.ones_like(candidate)
    counts = np.round(sums(*ones))
    reference_sum, candidate_sum = sums(reference, ones[1]), sums(ones[0], candidate)
    covariance = sums(reference, candidate) - reference_sum * candidate_sum / np.maximum(counts, 1)
    variances = [
        sums(np.square(reference), ones[1]) - np.square(reference_sum) / np.maximum(counts, 1),
        sums(ones[0], np.square(candidate)) - np.square(candidate_sum) / np.maximum(counts, 1),
    ]
    product = np.maximum(variances[0], 0) * np.maximum(variances[1], 0)
    usable = counts >= _MIN_OVERLAP * min(len(reference), len(candidate))
    usable &= product > 1e-9 * float(product.max(initial=0.0))  # where one side hardly changes, only rounding is left
    correlations = np.abs(covariance[usable]) / np.sqrt(product[usable])
    return float(correlations.max(initial=0.0))
