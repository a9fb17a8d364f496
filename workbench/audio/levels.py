"""The level of the loudest part of a recording, amplification to the level that detectors need, and detection of noise.

Levels are those of 10 ms frames. No single frame decides, so that a click in a quiet recording changes nothing.
"""

import numpy as np

from workbench.audio.constants import FRAME_SHIFT, SAMPLE_RATE
from workbench.audio.spans import frame_levels

ENOUGH_DB = -23.0  # relative to full scale; speech is loud enough for silero if its loudest half second reaches it
MAX_DB = 60.0  # largest amplification; the rounding noise of 16 bits stays 35 dB below full scale
_FFT = 512  # samples of one spectrum, 32 ms
_SPECTRA = 1000  # most spectra that are computed; they take 8 MB
_NEIGHBOURS = 10  # bins on either side, 310 Hz: a spectrum without lines is smooth over that range
_LINE = 4.0  # a harmonic exceeds this many times its neighbours' median; 0.6 s of noise stays below 3.1
_LOUD_FRAMES = round(0.5 * SAMPLE_RATE / FRAME_SHIFT)


def loud_level(levels: np.ndarray) -> float:
    """Returns the level in dB that the loudest half second of `levels` [frames] reaches; -100 without frames."""
    if len(levels) == 0:
        return -100.0
    place = max(len(levels) - _LOUD_FRAMES, 0)
    return float(np.partition(levels, place)[place])


def amplified(samples: np.ndarray, enough: float = ENOUGH_DB) -> np.ndarray:
    """Returns the samples [n], amplified to the level `enough` if they are quieter, otherwise unchanged.

    Amplified samples are returned without a constant offset.
    """
    frames = samples[: len(samples) // FRAME_SHIFT * FRAME_SHIFT].reshape(-1, FRAME_SHIFT)
    if len(frames) == 0:
        return samples
    gain = min(enough - loud_level(frame_levels(frames.reshape(-1))), MAX_DB)
    if gain <= 0:
        return samples
    louder: np.ndarray = (samples - np.median(frames.mean(axis=1))) * np.float32(10 ** (gain / 20))
    return louder


def noise_like(samples: np.ndarray) -> bool:
    """Returns whether the samples [n] are noise of any colour, or silence, and not tones, music or voices.

    The power spectrum of noise is usually smooth, while tones stand out of it as lines (Welch's method, 1967, with
    medians over time and over neighbouring frequencies). Returns False for less than two spectra.
    """
    hops = (len(samples) - _FFT) // (_FFT // 2) + 1
    if hops < 2:
        return False
    chosen = np.linspace(0, hops - 1, min(hops, _SPECTRA)).astype(int)  # evenly spread over a long pause
    places = chosen[:, None] * (_FFT // 2) + np.arange(_FFT)
    spectra = np.abs(np.fft.rfft(samples[places] * np.hanning(_FFT)))[:, 2:-2] ** 2
    spectrum = np.median(spectra, axis=0)  # a word within the noise changes few spectra
    around = np.lib.stride_tricks.sliding_window_view(spectrum, 2 * _NEIGHBOURS + 1)
    return bool((spectrum[_NEIGHBOURS:-_NEIGHBOURS] <= _LINE * np.median(around, axis=1)).all())
