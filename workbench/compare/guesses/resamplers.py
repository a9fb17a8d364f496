"""The ways in which ports change the rate of a recording, from soxr to repeated samples, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Resampler = Callable[[np.ndarray, int, int], np.ndarray]
"""Takes mono samples, their rate and the new rate in Hz, and returns the samples at the new rate."""

_SINC_ZEROS, _ROLLOFF = 6, 0.99  # of torchaudio's resampler: zeros of the sinc on each side, share of the pass band
_KAISER, _POLY_ZEROS = 5.0, 10  # of scipy's resample_poly


def by_soxr(quality: str) -> Resampler:
    """Returns soxr's resampler of a quality, such as HQ, the default of librosa."""

    def resampled(x: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
        import soxr

        return np.asarray(soxr.resample(x.astype(np.float32), rate, new_rate, quality), np.float64)

    return resampled


def by_sinc(x: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Returns what torchaudio's `resample` returns by default."""
    up, down = _reduced(rate, new_rate)
    base = min(up, down) * _ROLLOFF

    def kernel(times: np.ndarray) -> np.ndarray:  # in samples of the source
        places = (times / down * base).clip(-_SINC_ZEROS, _SINC_ZEROS)
        return np.sinc(places) * np.square(np.cos(places * np.pi / _SINC_ZEROS / 2)) * base / down

    return _polyphase(x, up, down, kernel, math.ceil(_SINC_ZEROS * down / base))


def by_kaiser(x: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Returns what scipy's `resample_poly` returns by default."""
    up, down = _reduced(rate, new_rate)
    half = _POLY_ZEROS * max(up, down)
    taps = np.sinc(np.arange(-half, half + 1) / max(up, down)) * np.kaiser(2 * half + 1, _KAISER)
    taps *= up / taps.sum()

    def kernel(times: np.ndarray) -> np.ndarray:
        places = np.rint(times * up).astype(int) + half
        return np.where((places >= 0) & (places < len(taps)), taps[places.clip(0, len(taps) - 1)], 0.0)

    return _polyphase(x, up, down, kernel, math.ceil(half / up))


def by_fourier(x: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Returns what scipy's `resample` returns: the spectrum of the whole recording, cut or continued with zeros."""
    count = len(x) * new_rate // rate
    shared = min(count, len(x))
    spectrum = np.zeros(count // 2 + 1, np.complex128)
    spectrum[: shared // 2 + 1] = np.fft.rfft(x)[: shared // 2 + 1]
    if shared % 2 == 0 and count != len(x):
        spectrum[shared // 2] *= 2.0 if count < len(x) else 0.5
    return np.asarray(np.fft.irfft(spectrum, count) * (count / len(x)))


def by_lines(x: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Returns straight lines between the samples, read at the new times."""
    count = len(x) * new_rate // rate
    return np.asarray(np.interp(np.arange(count) * (rate / new_rate), np.arange(len(x)), x))


def by_lines_between_ends(x: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Returns straight lines, whose first and last sample are those of the source: `linspace(0, n - 1, count)`."""
    return np.asarray(np.interp(np.linspace(0, len(x) - 1, len(x) * new_rate // rate), np.arange(len(x)), x))


def by_lines_between_centres(x: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Returns straight lines read in the middle of each new sample, as PyTorch's `interpolate` does by default."""
    count = len(x) * new_rate // rate
    return np.asarray(np.interp((np.arange(count) + 0.5) * (rate / new_rate) - 0.5, np.arange(len(x)), x))


def by_choice(x: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Returns samples that are left out or repeated, without any filter."""
    places = np.arange(len(x) * new_rate // rate) * rate // new_rate
    return np.asarray(x[places], np.float64)


SIMPLE: dict[str, Resampler] = {
    "by leaving out or repeating samples": by_choice,
    "by straight lines between samples": by_lines,
    "by straight lines between samples, from the first to the last": by_lines_between_ends,
    "by straight lines between samples, read in the middle of each": by_lines_between_centres,
}
"""Without a filter, by what they do."""

FILTERED: dict[str, Resampler] = {
    "as by soxr's VHQ": by_soxr("VHQ"),
    "as by soxr's HQ, the default of librosa": by_soxr("HQ"),
    "as by torchaudio's resample": by_sinc,
    "as by scipy's resample_poly": by_kaiser,
    "as by scipy's resample": by_fourier,
}
"""With a filter, by the program that has them; the reference has the first."""


def _reduced(rate: int, new_rate: int) -> tuple[int, int]:
    divisor = math.gcd(rate, new_rate)
    return new_rate // divisor, rate // divisor


def _polyphase(x: np.ndarray, up: int, down: int, kernel: Callable[[np.ndarray], np.ndarray], reach: int) -> np.ndarray:
    """Returns x resampled by up / down: sums of the samples within `reach`, times the kernel of their distance."""
    places = np.arange(-reach, reach + down)
    weights = kernel(np.arange(up)[:, None] * (down / up) - places)  # [phases, places]
    count = -(-len(x) * up // down)
    blocks = -(-count // up)
    padded = np.zeros(reach + max(blocks * down + reach, len(x)))
    padded[reach : reach + len(x)] = x
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(places))[::down][:blocks]
    return np.asarray((windows @ weights.T).reshape(-1)[:count])
