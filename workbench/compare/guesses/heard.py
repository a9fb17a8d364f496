"""Guesses at another sound in front of a right filter bank: resampled otherwise, at another rate, another channel.

The filter bank of the reference is computed from each sound that a port may have heard. Rounding decides what stands in
bands without power, as above half of a lower rate. So energies count only where they exceed the noise of 16 bits, which
a port's file may add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from workbench.audio.constants import INT16_SCALE, SAMPLE_RATE
from workbench.compare.guesses.filter_bank import bank_of
from workbench.compare.guesses.guess import FILTER_BANK, Guess, Rows, Scene, relative_l2, table
from workbench.compare.guesses.mel_bank import Bank
from workbench.compare.guesses.resamplers import FILTERED, SIMPLE, Resampler, by_soxr

_RATES = (8000, 11025, 12000, 22050, 24000, 32000, 44100, 48000)  # Hz
_MAX_SAMPLES = 3 * 60 * SAMPLE_RATE
_FRAMES_OFF = 3  # by which the number of frames may differ, as ends are treated in several ways
_MAX_CHANNELS = 8
_FAR_BETTER = 0.5  # a later version is named only if its remaining error is at most this share of an earlier one's
_MAX_SHARE = 0.05  # of the error that may remain
_MAX_REMAINING = 2e-3  # relative L2
_TRIED_ROWS = 48
_ABOVE_NOISE = 100.0  # powers above which the noise of 16 bits hardly matters
_LOST = math.log(100)  # in a band that has lost its power
_KEPT, _NEARLY_KEPT = 0.7, 0.78  # of half the lower rate: up to the first, no resampler's filter changes much
_SAME = 0.02  # relative L2 of bands that agree, but for what the window leaks of strong other bands
_NEARLY_ALL = 0.95  # of the cells
_LITTLE = 2.0  # in a logarithm, that a filter takes near its edge
_MIN_CELLS = 50


@dataclass(frozen=True)
class _Version:
    """A sound that a port may have heard; `words` follow "the filter bank of "."""

    words: str
    length: int  # samples
    samples: Callable[[], np.ndarray]


def other_sounds(scene: Scene) -> Iterator[Guess]:
    """Yields the filter bank of the sound that a port has heard instead."""
    samples, reference, candidate = scene.samples, scene.reference, scene.candidate
    if scene.stage != FILTER_BANK or samples is None or not 0 < len(samples) <= _MAX_SAMPLES:
        return
    if reference.ndim != 2 or reference.shape[1:] != candidate.shape[1:] or not np.isfinite(candidate).all():
        return
    bank = bank_of(reference, samples, scene.allowed)
    if bank is None:
        return
    noise = _noise(bank, reference.shape[1])

    def expected(rows: Rows) -> np.ndarray:
        return table(reference[rows])

    least, found_words = math.inf, ""
    for version in _versions(samples, scene.recorded):
        if abs(version.length - len(candidate) * bank.shift) <= bank.length + _FRAMES_OFF * bank.shift:
            error = _remaining(bank, version.samples(), scene, noise)
            if error < _FAR_BETTER * least:
                least, found_words = error, version.words
    if found_words:
        yield Guess("other sound", f"it is the filter bank of {found_words}", expected, is_verified=True)
        return
    if candidate.shape == reference.shape and (rate := _lower_rate(bank, scene, noise)):
        yield Guess(
            "other sound",
            f"the bands above {rate // 2} Hz have lost their power and those below agree, as when the sound was "
            f"resampled to {rate} Hz first",
            expected,
            is_verified=True,
        )


def _versions(samples: np.ndarray, recorded: tuple[np.ndarray, int] | None) -> Iterator[_Version]:
    """Yields sounds that ports may hear.

    Args:
        samples: mono at 16 kHz.
        recorded: samples [n, channels] at their own rate, and that rate; None if they are not known.
    """
    if recorded is not None:
        yield from _recorded_otherwise(*recorded)
    for rate in _RATES:
        for method, resampled in (FILTERED | SIMPLE).items():
            for old, new, words in (
                (SAMPLE_RATE, rate, f"the sound at {rate} Hz, read as if it were at {SAMPLE_RATE} Hz"),
                (rate, SAMPLE_RATE, f"the sound resampled from {rate} to {SAMPLE_RATE} Hz, though it is at the latter"),
            ):
                length = len(samples) * new // old
                yield _Version(f"{words} ({method})", length, partial(resampled, samples, old, new))
    for rate in _RATES:
        for method, resampled in (SIMPLE if rate > SAMPLE_RATE else FILTERED | SIMPLE).items():
            words = f"the sound resampled to {rate} Hz and back to {SAMPLE_RATE} Hz, {method}"
            yield _Version(words, len(samples), partial(_there_and_back, samples, rate, resampled))


def _recorded_otherwise(recorded: np.ndarray, rate: int) -> Iterator[_Version]:
    """Yields what becomes of a recording with several channels, or at another rate than 16 kHz."""
    count, channels = recorded.shape
    mono = recorded.mean(axis=1, dtype=np.float64)
    usual = partial(_at_rate, by_soxr("VHQ"), rate)
    length = count * SAMPLE_RATE // rate
    if 1 < channels <= _MAX_CHANNELS:
        instead = f", where the reference has the mean of {channels} channels"
        for channel in range(channels):
            yield _Version(f"channel {channel} alone{instead}", length, partial(usual, recorded[:, channel]))
        yield _Version(f"the sum of the channels{instead}", length, partial(usual, channels * mono))
        words = f"the samples of {channels} channels one after another, read as those of one channel"
        yield _Version(words, length * channels, partial(usual, recorded.reshape(-1)))
        yield _Version(f"{words} at {SAMPLE_RATE} Hz", count * channels, partial(np.asarray, recorded.reshape(-1)))
    if rate == SAMPLE_RATE:
        return
    words = f"the samples at {rate} Hz, read as if they were at {SAMPLE_RATE} Hz, without resampling"
    yield _Version(words, count, partial(np.asarray, mono))
    for method, resampled in (FILTERED | SIMPLE).items():
        words = f"the sound resampled from {rate} to {SAMPLE_RATE} Hz {method}, where the reference has soxr's VHQ"
        if method != next(iter(FILTERED)):
            yield _Version(words, length, partial(_at_rate, resampled, rate, mono))


def _at_rate(resampled: Resampler, rate: int, samples: np.ndarray) -> np.ndarray:
    return samples if rate == SAMPLE_RATE else resampled(samples, rate, SAMPLE_RATE)


def _there_and_back(samples: np.ndarray, rate: int, resampled: Resampler) -> np.ndarray:
    return resampled(resampled(samples.astype(np.float64), SAMPLE_RATE, rate), rate, SAMPLE_RATE)


def _noise(bank: Bank, bands: int) -> np.ndarray:
    """Returns the logarithm [bands] of energies that clearly exceed the noise of rounding to 16 bits."""
    white = np.random.default_rng(0).standard_normal(SAMPLE_RATE) / INT16_SCALE / math.sqrt(12)
    powers = np.exp(bank(white, np.arange(90), bands)).mean(axis=0)
    return np.asarray(np.log(_ABOVE_NOISE * powers))


def _remaining(bank: Bank, heard: np.ndarray, scene: Scene, noise: np.ndarray) -> float:
    """Returns the relative L2 between the candidate and the filter bank of a sound, where noise does not decide.

    Infinite if the sound does not explain the candidate.
    """
    candidate, bands = scene.candidate, scene.candidate.shape[1]
    count = min(len(candidate), 1 + (len(heard) - bank.length - bank.start) // bank.shift)
    if count < 1:
        return math.inf
    shared = min(count, len(scene.reference))
    error = math.inf
    for rows in (np.unique(np.linspace(0, count - 1, _TRIED_ROWS).round().astype(int)), np.arange(count)):
        expected, values = (np.maximum(each, noise) for each in (bank(heard, rows, bands), candidate[rows]))
        error = relative_l2(expected, values)
        both = rows[rows < shared]
        plain = relative_l2(np.maximum(scene.reference[both], noise), np.maximum(candidate[both], noise))
        if not error <= min(_MAX_REMAINING, _MAX_SHARE * plain):
            return math.inf
    return error


def _lower_rate(bank: Bank, scene: Scene, noise: np.ndarray) -> int:
    """Returns the lower rate in Hz at which the sound once was, by the bands that have lost their power; 0 without."""
    reference, candidate = np.maximum(scene.reference, noise), np.maximum(scene.candidate, noise)
    centres = bank.centres(reference.shape[1])
    for rate in (each for each in _RATES if each < SAMPLE_RATE):
        below, above = centres < _KEPT * rate / 2, centres > 1.1 * rate / 2
        between = (centres >= _KEPT * rate / 2) & (centres < _NEARLY_KEPT * rate / 2)
        loud = reference[:, above] > noise[above] + _LOST
        values = candidate[:, above][loud]
        if loud.sum() < _MIN_CELLS or not below.any() or np.ptp(scene.candidate[:, above][loud]) == 0:
            continue
        lost = values <= np.maximum(reference[:, above][loud] - _LOST, noise[above].max())
        is_kept = (candidate[:, between] > reference[:, between] - _LITTLE).mean() > _NEARLY_ALL if between.any() else 1
        if lost.mean() < _NEARLY_ALL or not is_kept:
            continue
        if relative_l2(reference[:, below], candidate[:, below]) <= _SAME:
            return rate
    return 0
