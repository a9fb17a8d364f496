"""A log-mel filter bank with any choices: it computes what ports do, also what `workbench.audio.fbank` does not.

The scales of frequency are in `workbench.compare.guesses.frequency_scales`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from workbench.audio.constants import INT16_SCALE, MEL_LOW_HZ, PREEMPHASIS, SAMPLE_RATE
from workbench.compare.guesses.frequency_scales import hertz_of, units_of_hertz
from workbench.compare.guesses.guess import Rows

SHIFT, LENGTH, POINTS = 160, 400, 512  # samples
FLOOR = float(np.finfo(np.float32).eps)
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class Bank:
    """The choices of a filter bank."""

    window: str = "hamming"
    periodic: bool = False
    length: int = LENGTH  # of the window in samples
    shift: int = SHIFT  # samples from one frame to the next
    points: int = POINTS  # of the Fourier transform
    start: int = 0  # first sample of the first frame
    edges: str = "zeros"  # what stands beyond the ends
    scale: float = INT16_SCALE
    remove_dc: bool = True
    dc_last: bool = False  # the mean is removed after pre-emphasis
    preemphasis: float = PREEMPHASIS
    times: int = 1  # how often pre-emphasis is applied to each frame
    whole: bool = False  # pre-emphasis of the whole sound, before it is divided into frames
    first_kept: bool = False  # pre-emphasis leaves the first sample of each frame as it is
    low: float = MEL_LOW_HZ
    high: float = SAMPLE_RATE / 2
    mel: str = "htk"
    straight: bool = False  # triangles are straight over Hz, not over mel
    area: bool = False  # triangles of one area, not of one height
    corners: str = "exact"  # of the triangles, or at whole bins of the Fourier transform
    power: int = 2
    divided: bool = False  # powers are divided by the points of the Fourier transform
    floor: float = FLOOR
    added: float = 0.0  # to each energy before the logarithm
    log: str = "natural"  # one of `LOGARITHMS`
    decades: float = 0.0  # below the loudest value that are kept; then `floor` is their end; 0 for all

    def __call__(self, samples: np.ndarray, rows: Rows, bands: int) -> np.ndarray:
        """Returns rows of the filter bank of samples with full scale 1."""
        places = rows[:, None] * self.shift + self.start + np.arange(self.length)
        frames = self.scale * _values_at(samples, places, self.edges)
        if self.whole:
            earlier = self.scale * _values_at(samples, places - 1, self.edges)
            if self.edges == "zeros":  # they are not pre-emphasised
                earlier[(places < 0) | (places >= len(samples))] = 0.0
            frames = frames - self.preemphasis * earlier
        if self.remove_dc and not self.dc_last:
            frames = frames - frames.mean(axis=1, keepdims=True)
        for _ in range(0 if self.whole else self.times):
            before_first = frames[:, :1] * (not self.first_kept)
            frames = frames - self.preemphasis * np.concatenate([before_first, frames[:, :-1]], axis=1)
        if self.remove_dc and self.dc_last:
            frames = frames - frames.mean(axis=1, keepdims=True)
        spectrum = np.abs(np.fft.rfft(frames * _window(self.window, self.length, self.periodic), self.points, axis=1))
        triangles = _triangles(
            self.mel, bands, self.points, self.low, self.high, self.straight, self.area, self.corners
        )
        energies = spectrum**self.power @ triangles / (self.points if self.divided else 1)
        factor, addend = LOGARITHMS[self.log]
        return np.asarray(factor * np.log(np.maximum(energies, self.floor) + self.added) + addend)

    def centres(self, bands: int) -> np.ndarray:
        """Returns the frequencies [bands] in Hz where the triangles are highest."""
        low, high = units_of_hertz(np.array(self.low), self.mel), units_of_hertz(np.array(self.high), self.mel)
        return hertz_of(np.linspace(low, high, bands + 2)[1:-1], self.mel)


_LOG10 = 1 / math.log(10)
LOGARITHMS = {
    "natural": (1.0, 0.0),
    "log10": (_LOG10, 0.0),
    "dB": (10 * _LOG10, 0.0),
    "log2": (1 / math.log(2), 0.0),
    "whisper": (_LOG10 / 4, 1.0),  # (log10 + 4) / 4
}
"""Factor of the natural logarithm, and addend."""


def energy_of(value: float, log: str) -> float:
    """Returns the energy whose logarithm is a value; infinite if it is too large for a number."""
    factor, addend = LOGARITHMS[log]
    exponent = (value - addend) / factor
    return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf


LIBRARY = Bank(
    window="hanning",
    periodic=True,
    start=-200,
    edges="reflect",
    scale=1.0,
    remove_dc=False,
    preemphasis=0.0,
    low=0.0,
    mel="slaney",
    straight=True,
    area=True,
    floor=1e-10,
)
"""What libraries that were not made for speech recognition compute unless they are told otherwise, such as librosa."""

SPEECH_FEATURES = Bank(
    window="rectangular",
    remove_dc=False,
    whole=True,
    low=0.0,
    corners="next",
    divided=True,
    floor=float(np.finfo(np.float64).eps),
)
"""What python_speech_features computes."""

WHISPER = replace(LIBRARY, points=LENGTH, log="whisper", decades=8.0)
"""What Whisper's front end computes; `floor` depends on the loudest value."""


def _values_at(x: np.ndarray, places: np.ndarray, edges: str) -> np.ndarray:
    """Returns values at places that may lie beyond the ends."""
    last = len(x) - 1
    source_places = places
    if edges == "symmetric":
        source_places = np.where(places < 0, -1 - places, np.where(places > last, 2 * last + 1 - places, places))
    elif edges == "reflect in front":
        source_places = np.where(places < 0, -places, places)
    elif edges == "reflect":
        source_places = np.where(places < 0, -places, np.where(places > last, 2 * last - places, places))
    values = x[source_places.clip(0, last)].astype(np.float64)
    return np.where((source_places < 0) | (source_places > last), 0.0, values)


@lru_cache(maxsize=32)
def _window(name: str, length: int, periodic: bool) -> np.ndarray:
    angles = 2 * np.pi * np.arange(length) / (length if periodic else length - 1)
    hann = 0.5 - 0.5 * np.cos(angles)
    return {
        "hamming": 0.54 - 0.46 * np.cos(angles),
        "hanning": hann,
        "povey": hann**0.85,
        "rectangular": np.ones(length),
        "blackman": 0.42 - 0.5 * np.cos(angles) + 0.08 * np.cos(2 * angles),
    }[name]


@lru_cache(maxsize=64)
def _triangles(
    mel: str, bands: int, points: int, low: float, high: float, straight: bool, area: bool, corners_at: str
) -> np.ndarray:
    """Returns the weights [frequencies, bands]."""
    hertz = np.arange(points // 2 + 1) * SAMPLE_RATE / points
    corners = np.linspace(units_of_hertz(np.array(low), mel), units_of_hertz(np.array(high), mel), bands + 2)
    frequencies = hertz[:, None]
    if corners_at != "exact":
        bins = hertz_of(corners, mel) / SAMPLE_RATE * (points + (corners_at == "next"))
        corners = np.asarray(np.rint(bins) if corners_at == "nearest" else np.floor(bins.round(9)))
        frequencies = np.arange(len(hertz), dtype=np.float64)[:, None]
    elif straight:
        corners = hertz_of(corners, mel)
    else:
        frequencies = units_of_hertz(frequencies, mel)
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    with np.errstate(all="ignore"):  # corners in one bin
        rising, falling = (frequencies - left) / (middle - left), (right - frequencies) / (right - middle)
    if corners_at == "exact":
        triangles = np.minimum(rising, falling).clip(0.0)
    else:
        is_rising, is_falling = (
            (left <= frequencies) & (frequencies < middle),
            (middle <= frequencies) & (frequencies < right),
        )
        triangles = np.where(is_rising, rising, np.where(is_falling, falling, 0.0))
    if area and corners_at == "exact":
        ends = corners if straight else hertz_of(corners, mel)
        triangles = triangles * 2 / (ends[2:] - ends[:-2])
    return np.asarray(triangles)
