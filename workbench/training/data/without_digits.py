"""Recordings in which no digit is said: silence, noise, music, other speech, a crowd. Their label is empty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import SAMPLE_RATE
from workbench.training.data.augment import COLOURS, add_upper_band, bursts, noise, power, quantised, warp
from workbench.training.data.digit_string import DigitString, join
from workbench.training.data.music import music, tones
from workbench.training.data.take_bank import TakeBank


def silence(rng: np.random.Generator) -> DigitString:
    """Draws a recording without speech: digital silence, noise at any level, sometimes with knocks and clicks."""
    count = int(rng.uniform(0.3, 5.0) * SAMPLE_RATE)
    samples = np.zeros(count, dtype=np.float32)
    if rng.random() < 0.9:
        samples = noise(count, str(rng.choice(COLOURS)), rng) * np.float32(10.0 ** (rng.uniform(-80.0, -18.0) / 20.0))
    if rng.random() < 0.3:
        samples = samples + bursts(count, rng) * np.float32(10.0 ** (rng.uniform(-50.0, -6.0) / 20.0))
    if rng.random() < 0.6:
        samples = quantised(samples)
    return DigitString(samples, (), (), "")


def unspoken(rng: np.random.Generator) -> DigitString:
    """Draws music or tones, between silences, without an effect of a room or a line."""
    sound = (music if rng.random() < 0.75 else tones)(rng, float(rng.uniform(0.5, 5.0)))
    return _without_digits([sound], (0.0, 0.4), rng)


def other_speech(
    bank: TakeBank, rng: np.random.Generator, lead_seconds: tuple[float, float], most_warped: float
) -> DigitString:
    """Draws one to three takes of speech without digits, or a crowd; raises `ValueError` if the bank has no such
    take.

    Args:
        lead_seconds: the least and the most silence before and after.
        most_warped: largest change of pitch and formants, as in `CorpusOptions.warp`.
    """
    if not bank.others:
        raise ValueError("the bank has no takes without digits")
    if rng.random() < 0.08:
        return _without_digits([babble(bank, int(rng.uniform(0.5, 5.0) * SAMPLE_RATE), rng)], (0.0, 0.2), rng)
    drawn_takes = rng.choice(bank.others, int(rng.choice([1, 2, 3], p=[0.6, 0.3, 0.1])))
    string = _without_digits([bank.sound(int(take)) for take in drawn_takes], lead_seconds, rng)
    samples = warp(string.samples, float(np.exp(rng.uniform(-1.0, 1.0) * np.log1p(most_warped))))
    if bank.narrow[drawn_takes[0]] and rng.random() < 0.5:
        samples = add_upper_band(samples, rng)
    return DigitString(samples, (), ((0, len(samples), ()),), string.speaker)


def _without_digits(
    sounds: Sequence[NDArray[np.float32]], lead_seconds: tuple[float, float], rng: np.random.Generator
) -> DigitString:
    before, after = (int(rng.uniform(*lead_seconds) * SAMPLE_RATE) for _ in range(2))
    gaps = [int(gap * SAMPLE_RATE) for gap in rng.uniform(0.05, 0.6, len(sounds) - 1)]
    samples, spans = join(sounds, gaps, before, after)
    return DigitString(samples, (), tuple((start, end, ()) for start, end in spans), "")


def babble(bank: TakeBank, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Returns `count` samples of four to eight speakers at once, each a segment of the bank from a random position."""
    samples = np.zeros(count, dtype=np.float32)
    for _ in range(int(rng.integers(4, 9))):
        start = int(rng.integers(0, max(len(bank.samples) - count, 1)))
        voice = np.resize(bank.samples[start : start + count], count).astype(np.float32)
        samples += voice * np.float32(rng.uniform(0.5, 1.0) / np.sqrt(power(voice) + 1.0))
    return samples
