"""Guesses at a log-mel filter bank with other choices: window, pre-emphasis, mel scale, where frames begin.

If the sound is known, the reference's filter bank shows its choices. Then choices are changed, one after another, as
long as the result comes nearer to the candidate. The hint is given only if it is met in the end, as for other guesses.
This file computes filter banks as ports do, with wrong choices that `workbench.audio.fbank` does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from workbench.audio.constants import INT16_SCALE, MEL_LOW_HZ, PREEMPHASIS, SAMPLE_RATE
from workbench.compare.guesses.guess import FILTER_BANK, Guess, Rows, Scene, relative_l2
from workbench.core.phrases import enumerated

_TRIED_ROWS = 24
_MOST_CHANGES = 6
_NEARER = 0.8  # a change is kept if at most this share of the difference remains
_SHIFT, _LENGTH, _POINTS = 160, 400, 512  # samples
_FLOOR = float(np.finfo(np.float32).eps)
_LOWS = (MEL_LOW_HZ, 0.0, 40.0, 60.0, 64.0, 80.0, 125.0, 133.3333)  # Hz
_ADDED = (1.0, 1e-3, 1e-5, 1e-6, 1e-8, 1e-9, 1e-10, 2.0**-24)  # to energies before the logarithm
_HIGHS = (8000.0, 7600.0, 7800.0, 7500.0, 7000.0, 6855.4976, 4000.0)


@dataclass(frozen=True)
class Bank:
    """The choices of a filter bank."""

    window: str = "hamming"
    periodic: bool = False
    length: int = _LENGTH  # of the window in samples
    points: int = _POINTS  # of the Fourier transform
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
    power: int = 2
    floor: float = _FLOOR
    added: float = 0.0  # to each energy before the logarithm

    def __call__(self, samples: np.ndarray, rows: Rows, bands: int) -> np.ndarray:
        """Returns rows of the filter bank of samples with full scale 1."""
        places = rows[:, None] * _SHIFT + self.start + np.arange(self.length)
        frames = self.scale * _values_at(samples, places, self.edges)
        if self.whole:
            frames = frames - self.preemphasis * self.scale * _values_at(samples, places - 1, self.edges)
        if self.remove_dc and not self.dc_last:
            frames = frames - frames.mean(axis=1, keepdims=True)
        for _ in range(0 if self.whole else self.times):
            before_first = frames[:, :1] * (not self.first_kept)
            frames = frames - self.preemphasis * np.concatenate([before_first, frames[:, :-1]], axis=1)
        if self.remove_dc and self.dc_last:
            frames = frames - frames.mean(axis=1, keepdims=True)
        spectrum = np.abs(np.fft.rfft(frames * _window(self.window, self.length, self.periodic), self.points, axis=1))
        triangles = _triangles(self.mel, bands, self.points, self.low, self.high, self.straight, self.area)
        return np.asarray(np.log(np.maximum(spectrum**self.power @ triangles, self.floor) + self.added))


_LIBRARY = Bank(
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


def filter_banks(scene: Scene) -> Iterator[Guess]:
    """Yields the filter bank of the sound with the choices that come nearest to the candidate."""
    samples, reference, candidate = scene.samples, scene.reference, scene.candidate
    if (
        scene.stage != FILTER_BANK
        or samples is None
        or reference.ndim != 2
        or reference.shape[1:] != candidate.shape[1:]
    ):
        return
    rows = np.unique(np.linspace(0, len(reference) - 1, _TRIED_ROWS).round().astype(int))
    bands = reference.shape[1]
    reference_bank = min(_usual(), key=lambda bank: relative_l2(reference[rows], bank(samples, rows, bands)))
    if not relative_l2(reference[rows], reference_bank(samples, rows, bands)) <= scene.allowed:
        return
    rows = np.unique(np.linspace(0, len(candidate) - 1, _TRIED_ROWS).round().astype(int))
    if candidate.shape == reference.shape:  # those that differ most, since a floor changes a few only
        row_errors = np.linalg.norm(candidate.astype(np.float64) - reference, axis=1)
        rows = np.union1d(rows[::2], np.argsort(row_errors)[-_TRIED_ROWS // 2 :])
    candidate_rows = np.asarray(candidate[rows], np.float64)
    if relative_l2(candidate_rows, reference_bank(samples, rows, bands)) <= scene.allowed:
        return  # other rows differ
    for begin in (reference_bank, replace(_LIBRARY, window=reference_bank.window), _LIBRARY):
        bank = _nearest(
            begin, lambda bank: relative_l2(candidate_rows, bank(samples, rows, bands)), candidate_rows, scene.allowed
        )
        if bank is not None:
            words = _bank_difference(reference_bank, bank)
            yield Guess("filter bank", words, lambda rows, bank=bank: bank(samples, rows, bands))  # type: ignore[misc]
            return


def _nearest(bank: Bank, error_of: Callable[[Bank], float], candidate: np.ndarray, allowed: float) -> Bank | None:
    """Returns the filter bank that one change after another leads to; None if it is not the candidate's."""
    error = error_of(bank)
    for _ in range(_MOST_CHANGES):
        if error <= allowed:
            return bank
        errors = [(error_of(each), each) for each in _changes(bank, candidate)]
        least_error, nearest_bank = min(errors, key=lambda each: each[0])
        if not least_error <= _NEARER * error:
            return None
        bank, error = nearest_bank, least_error
    return bank if error <= allowed else None


def _usual() -> list[Bank]:
    """Returns the filter banks that a reference has."""
    return [
        replace(Bank(), window=window, scale=scale, **where)
        for window in ("hamming", "povey", "hanning")
        for scale in (INT16_SCALE, 1.0)
        for where in (dict[str, Any](), {"start": -120, "edges": "symmetric"})
    ]


def _changes(bank: Bank, candidate: np.ndarray) -> Iterator[Bank]:
    """Yields each choice changed by itself."""
    choices: dict[str, tuple[Any, ...]] = {
        "window": ("hamming", "hanning", "povey", "rectangular", "blackman"),
        "periodic": (True, False),
        "length": (_LENGTH, 320, 480, 512),
        "points": (_POINTS, 400, 1024),
        "scale": (INT16_SCALE, 1.0, 32767.0),
        "remove_dc": (True, False),
        "dc_last": (True, False),
        "preemphasis": (PREEMPHASIS, 0.0, 0.95, 0.98, 0.9, 1.0),
        "times": (1, 2),
        "whole": (True, False),
        "first_kept": (True, False),
        "low": _LOWS,
        "high": _HIGHS,
        "mel": ("htk", "slaney"),
        "straight": (True, False),
        "area": (True, False),
        "power": (2, 1),
        "floor": (_FLOOR, 1.0, 1e-10, float(np.exp(candidate.min()))),
        "added": (0.0, *_ADDED),
    }
    for name, values in choices.items():
        for value in values:
            if value != getattr(bank, name):
                yield replace(bank, **{name: value})
    # Either change alone may lead away from the candidate.
    pairs = [(low, high) for low in _LOWS for high in _HIGHS if low != bank.low and high != bank.high]
    yield from (replace(bank, low=low, high=high) for low, high in pairs)
    yield from (replace(bank, floor=0.0, added=added) for added in _ADDED if bank.floor)
    for start in (0, -200, -120, -80, -160, -256, 80, 160):
        if start != bank.start:
            yield replace(bank, start=start)
    for edges in ("zeros", "symmetric", "reflect") if bank.start < 0 else ():
        if edges != bank.edges:
            yield replace(bank, edges=edges)


def _bank_difference(reference_bank: Bank, bank: Bank) -> str:
    """Returns the choices that differ, as a sentence."""
    candidate_words, reference_words = _words(bank), _words(reference_bank)
    differ = [name for name in candidate_words if candidate_words[name] != reference_words[name]]
    candidate_choices, reference_choices = (
        enumerated([words[name] for name in differ]) for words in (candidate_words, reference_words)
    )
    return f"the filter bank has {candidate_choices}, where the reference has {reference_choices}"


def _words(bank: Bank) -> dict[str, str]:
    edge_values = {
        "zeros": "zeros",
        "symmetric": "the mirrored sound",
        "reflect": "the mirrored sound without its last sample",
    }
    frame_start = f"frames from sample {bank.start} on"
    return {
        "window": f"a {bank.window} window",
        "periodic": f"a {'periodic' if bank.periodic else 'symmetric'} window",
        "length": f"a window of {bank.length} samples",
        "points": f"a Fourier transform of {bank.points} points",
        "start": frame_start + (f" with {edge_values[bank.edges]} beyond the ends" if bank.start < 0 else ""),
        "scale": f"samples of full scale {bank.scale:g}",
        "remove_dc": f"frames {'without' if bank.remove_dc else 'with'} their mean",
        "dc_last": f"the mean removed {'after' if bank.dc_last else 'before'} pre-emphasis",
        "preemphasis": f"the pre-emphasis {bank.preemphasis:g}",
        "times": f"pre-emphasis {'twice' if bank.times == 2 else 'once'}",
        "whole": f"pre-emphasis of {'the whole sound' if bank.whole else 'each frame'}",
        "first_kept": f"the first sample of a frame {'without' if bank.first_kept else 'with'} pre-emphasis",
        "low": f"its lowest band from {bank.low:.7g} Hz on",
        "high": f"its highest band up to {bank.high:.8g} Hz",
        "mel": f"the mel scale of {'HTK' if bank.mel == 'htk' else 'Slaney'}",
        "straight": f"triangles over {'Hz' if bank.straight else 'mel'}",
        "area": f"triangles of one {'area' if bank.area else 'height'}",
        "power": "powers" if bank.power == 2 else "magnitudes",
        "floor": f"energies of at least {bank.floor:.4g}" if bank.floor else "energies without a floor",
        "added": f"energies plus {bank.added:.4g}" if bank.added else "energies without an addend",
    }


def _values_at(x: np.ndarray, places: np.ndarray, edges: str) -> np.ndarray:
    """Returns values at places that may lie beyond the ends."""
    last = len(x) - 1
    source_places = places
    if edges == "symmetric":
        source_places = np.where(places < 0, -1 - places, np.where(places > last, 2 * last + 1 - places, places))
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
def _triangles(mel: str, bands: int, points: int, low: float, high: float, straight: bool, area: bool) -> np.ndarray:
    """Returns the weights [frequencies, bands]."""
    hertz = np.arange(points // 2 + 1) * SAMPLE_RATE / points
    corners = np.linspace(_mel(np.array(low), mel), _mel(np.array(high), mel), bands + 2)
    frequencies = hertz[:, None]
    if straight:
        corners = _hertz(corners, mel)
    else:
        frequencies = _mel(frequencies, mel)
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    triangles = np.minimum((frequencies - left) / (middle - left), (right - frequencies) / (right - middle)).clip(0.0)
    if area:
        ends = corners if straight else _hertz(corners, mel)
        triangles = triangles * 2 / (ends[2:] - ends[:-2])
    return np.asarray(triangles)


_SLANEY_STEP = np.log(6.4) / 27  # Slaney's scale is straight up to 1000 Hz, 15 mel, and logarithmic from there


def _mel(hertz: np.ndarray, kind: str) -> np.ndarray:
    if kind == "htk":
        return np.asarray(1127 * np.log1p(hertz / 700))
    return np.where(hertz < 1000, 3 * hertz / 200, 15 + np.log(np.maximum(hertz, 1000) / 1000) / _SLANEY_STEP)


def _hertz(mel: np.ndarray, kind: str) -> np.ndarray:
    if kind == "htk":
        return np.asarray(700 * np.expm1(mel / 1127))
    return np.where(mel < 15, 200 * mel / 3, 1000 * np.exp(_SLANEY_STEP * (mel - 15)))
