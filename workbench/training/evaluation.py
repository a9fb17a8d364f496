"""Fixed recordings to measure a recogniser of spoken digits: strings of a speaker that it was not trained on.

Equal seeds give equal recordings, clean or distorted by a named condition, so that results of different networks can be
compared. This file does not transcribe and knows no model: the caller passes the function to `measure`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import SAMPLE_RATE
from workbench.text.rates import ErrorRates, pool_scores, score
from workbench.training.data.augment import (
    change_tempo,
    filtered,
    mu_law,
    noise,
    passband,
    power,
    quantised,
    reverberated,
    warp,
    with_noise,
)
from workbench.training.data.corpus import draw_takes
from workbench.training.data.digit_string import DigitString, join
from workbench.training.data.digits import Take
from workbench.training.data.take_bank import TakeBank

FLOOR_DB = 50.0  # decibels: level of the room's faint noise below the speech
GAP_SECONDS = (0.05, 0.3)  # between two digits
LEAD_SECONDS = (0.15, 0.4)  # before the first and after the last


def assemble(
    bank: TakeBank, takes: Sequence[int], gaps: Sequence[float], lead: tuple[float, float], rng: np.random.Generator
) -> DigitString:
    """Joins the takes, `gaps` seconds apart, with `lead` seconds before and after, over a faint room noise.

    The result is scaled to a peak of one half of full scale.
    """
    sounds = [bank.sound(take) for take in takes]
    before, after = (round(seconds * SAMPLE_RATE) for seconds in lead)
    samples, spans = join(sounds, [round(gap * SAMPLE_RATE) for gap in gaps], before, after)
    string = DigitString(
        samples=samples,
        digits=tuple(digit for take in takes for digit in bank.digits[take]),
        spans=tuple((start, end, bank.digits[take]) for (start, end), take in zip(spans, takes, strict=True)),
        speaker=bank.speakers[takes[0]],
    )
    floor = noise(len(samples), "pink", rng)
    samples = with_noise(samples, floor, power(samples[string.active]), FLOOR_DB)
    return replace(string, samples=(samples * np.float32(0.5 / np.abs(samples).max())).astype(np.float32))


def evaluation_strings(
    takes: Sequence[Take],
    seed: int = 0,
    count: int = 300,
    lengths: tuple[int, int] = (3, 7),
) -> list[DigitString]:
    """Returns `count` strings of digits at 16 kHz, each of one speaker; `lengths` are the least and the most digits.

    The same seed gives the same strings.
    """
    bank = TakeBank.of(takes)
    names = sorted(set(bank.speakers))
    strings = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        speaker = names[int(rng.integers(len(names)))]
        drawn_takes = draw_takes(bank, speaker, int(rng.integers(lengths[0], lengths[1] + 1)), rng)
        between = rng.uniform(*GAP_SECONDS, len(drawn_takes) - 1).tolist()
        before, after = rng.uniform(*LEAD_SECONDS, 2).tolist()
        strings.append(assemble(bank, drawn_takes, between, (before, after), rng))
    return strings


def in_white_noise(string: DigitString, snr_db: float, rng: np.random.Generator) -> DigitString:
    """Returns the string in white noise of 0 to 8 kHz, `snr_db` decibels below the mean power within its takes.

    Gaps between takes do not count.
    """
    hiss = noise(len(string.samples), "white", rng)
    samples = with_noise(string.samples, hiss, power(string.samples[string.active]), snr_db)
    return replace(string, samples=samples.astype(np.float32))


# --- other conditions ------------------------------------------------------------------------------------------------

Condition = Callable[[DigitString, np.random.Generator], DigitString]


def _on_samples(change: Callable[[NDArray[np.float32], np.random.Generator], NDArray[np.float32]]) -> Condition:
    return lambda string, rng: replace(string, samples=change(string.samples, rng))


def _rescaled(string: DigitString, samples: NDArray[np.float32]) -> DigitString:
    """Returns the string with samples of another length and its spans moved accordingly."""
    factor = len(samples) / len(string.samples)
    spans = tuple((round(start * factor), round(end * factor), digits) for start, end, digits in string.spans)
    return replace(string, samples=samples, spans=spans)


CONDITIONS: Mapping[str, Condition] = {
    "as recorded": lambda string, rng: string,
    "white noise 20 dB": lambda string, rng: in_white_noise(string, 20.0, rng),
    "white noise 10 dB": lambda string, rng: in_white_noise(string, 10.0, rng),
    "telephone": _on_samples(lambda samples, rng: mu_law(filtered(samples, passband(300.0, 3400.0, edge=200.0)))),
    "small room": _on_samples(reverberated),
    "quiet, 16 bit": _on_samples(lambda samples, rng: quantised(samples * np.float32(0.02))),
    "clipped": _on_samples(lambda samples, rng: np.clip(samples * np.float32(4.0), -1.0, 1.0)),
    "20 % faster": lambda string, rng: _rescaled(string, change_tempo(string.samples, 1.2, SAMPLE_RATE)),
    "20 % slower": lambda string, rng: _rescaled(string, change_tempo(string.samples, 1 / 1.2, SAMPLE_RATE)),
    "higher voice": lambda string, rng: _rescaled(string, warp(string.samples, 1.15)),
    "lower voice": lambda string, rng: _rescaled(string, warp(string.samples, 1 / 1.15)),
}


def under(condition: str, strings: Sequence[DigitString]) -> list[DigitString]:
    """Returns the strings under one of CONDITIONS; the same strings give the same noise."""
    change = CONDITIONS[condition]
    return [change(string, np.random.default_rng([0, number, 2])) for number, string in enumerate(strings)]


# --- measuring -------------------------------------------------------------------------------------------------------


def measure(transcribe: Callable[[NDArray[np.float32]], str], strings: Sequence[DigitString]) -> ErrorRates:
    """Runs `transcribe(samples at 16 kHz) -> text` on every string; returns the error rates over all of them together.

    With a session: `measure(lambda samples: session.transcribe((samples, 16_000)).text, strings).wer`.
    """
    return pool_scores([score(string.text, transcribe(string.samples)) for string in strings])
