"""Whisper's log-mel features of a recording at 16 kHz, in numpy (Radford et al., 2022).

They equal those of transformers' WhisperFeatureExtractor without padding to 30 seconds. This file reads no files.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from workbench.audio.constants import SAMPLE_RATE

MAX_HERTZ = 8000.0  # Hz, where the last mel band ends
FLOOR = 1e-10  # of a band's energy
RANGE = 8.0  # decades below the loudest value, which are kept
LINEAR_HZ, LINEAR_MEL = 1000.0, 15.0  # Slaney's scale is linear up to here, logarithmic above
BLOCK = 3000  # frames computed at a time


class WhisperMel:
    """Computes the features.

    Args:
        bins: mel bands.
        hop: samples between frames.
        window: samples of a frame.
        normalise: bring the samples to mean 0 and variance 1 first.
    """

    def __init__(self, bins: int, hop: int, window: int, normalise: bool):
        self.bins, self.hop, self.window, self.normalise = bins, hop, window, normalise

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """Returns log-mel features, float32 [n // hop, bins], of samples [n] at 16 kHz, at least half a window."""
        samples = np.asarray(samples, dtype=np.float32)
        if self.normalise:
            samples = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
        padded = np.pad(samples.astype(np.float64), self.window // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, self.window)[:: self.hop][: len(samples) // self.hop]
        shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.window) / self.window)  # Hann's
        bank = mel_bank(self.bins, self.window)
        energies = np.empty((len(frames), self.bins))
        for first in range(0, len(frames), BLOCK):
            spectrum = np.fft.rfft(frames[first : first + BLOCK] * shape, axis=1)
            energies[first : first + BLOCK] = (spectrum.real**2 + spectrum.imag**2) @ bank
        logs = np.log10(np.maximum(energies, FLOOR))
        found: np.ndarray = ((np.maximum(logs, logs.max() - RANGE) + 4) / 4).astype(np.float32)
        return found


@cache
def mel_bank(bins: int, window: int) -> np.ndarray:
    """Returns triangular filters [window // 2 + 1, bins] on Slaney's mel scale, each of the same area."""
    edges = _hertz(np.linspace(0.0, _mel(MAX_HERTZ), bins + 2))
    frequencies = np.linspace(0, SAMPLE_RATE // 2, window // 2 + 1)
    distances = edges[None, :] - frequencies[:, None]
    rising = -distances[:, :-2] / np.diff(edges)[:-1]
    falling = distances[:, 2:] / np.diff(edges)[1:]
    bank: np.ndarray = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))
    return bank


def _mel(hertz: float) -> float:
    return LINEAR_MEL + float(np.log(hertz / LINEAR_HZ)) * 27 / float(np.log(6.4))


def _hertz(mels: np.ndarray) -> np.ndarray:
    logarithmic = LINEAR_HZ * np.exp(np.log(6.4) / 27 * (mels - LINEAR_MEL))
    return np.where(mels >= LINEAR_MEL, logarithmic, mels * LINEAR_HZ / LINEAR_MEL)
