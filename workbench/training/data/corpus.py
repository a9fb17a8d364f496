"""Strings of spoken digits as a training set: concatenates takes of one speaker, distorts them, and computes features.

`draw_string` makes one labelled recording of the takes in a `TakeBank`, with digits or without (`without_digits.py`),
and `frames_of` computes its features. This file knows no network and writes nothing to disk (`pool.py` does).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import ASR_LFR_M, ASR_LFR_N, FRAME_SHIFT, NUM_MELS, SAMPLE_RATE
from workbench.training.data.augment import (
    AugmentOptions,
    add_upper_band,
    distorted,
    filtered,
    passband,
    warp,
)
from workbench.training.data.digit_string import DigitString, join
from workbench.training.data.take_bank import TakeBank
from workbench.training.data.without_digits import babble, other_speech, silence, unspoken

# Weights of the number of digits in a string: mostly three to seven, and a few much longer strings, so that a network
# that uses positions has seen large ones.
LENGTHS: Mapping[int, float] = dict(
    enumerate([12, 10, 14, 14, 13, 11, 10, 5, 4, 4] + 14 * [0.25], start=1)  # 1 to 10, 11 to 24
)

# Styles of speaking: shortest and longest gap between two digits, in seconds. Digits with a negative gap overlap.
GAPS = ((-0.04, 0.02), (-0.04, 0.1), (0.0, 0.2), (0.05, 0.3), (0.15, 0.5))


VOICED_DB = 18.0  # below the loudest 10 ms: where a vowel begins and ends


@dataclass(frozen=True, eq=False)
class Example:
    """One training example."""

    features: NDArray[np.float32]  # [LFR frames, 560], without CMVN
    digits: tuple[int, ...]  # empty for a recording without speech


@dataclass(frozen=True)
class CorpusOptions:
    """The composition of the training set."""

    human_share: float = 0.5  # of the strings with speech; the others are synthetic voices
    silent_share: float = 0.03  # of all strings: noise or silence only, with an empty label
    music_share: float = 0.0  # of all strings: music and tones, with an empty label
    speech_share: float = 0.0  # of all strings: speech without digits, with an empty label
    # Of synthetic strings: made of utterances of several digits if the voice has some.
    breath_share: float = 0.5
    lengths: Mapping[int, float] = field(default_factory=lambda: dict(LENGTHS))  # digits in a string -> weight
    lead_seconds: tuple[float, float] = (0.05, 0.8)  # silence before and after
    long_pause_share: float = 0.04  # of the gaps: half a second to a second and a half
    warp: float = 0.18  # largest change of pitch and formants: factors 1/1.18 to 1.18
    tempos: tuple[float, ...] = (0.8, 1.0, 1.25, 1.5)  # stored tempos of human takes, pitch unchanged
    trimmed_share: float = 0.35  # of the takes: cut so tightly that a little of the word is missing
    trim: tuple[float, float] = (0.1, 0.2)  # of a take's length, the most cut from its start and from its end
    gated_share: float = 0.0  # of the takes: cut where the level is this far below the peak
    gate_db: tuple[float, float] = (10.0, 30.0)  # smallest and largest of these levels
    # Of the takes of one digit: cut to their voiced part, as recordings without their weak consonants are.
    voiced_share: Mapping[int, float] = field(default_factory=dict)
    consonant_seconds: tuple[float, float] = (0.04, 0.12)  # at most this much stays before and after that part
    augment: AugmentOptions = field(default_factory=AugmentOptions)
    window: str = "hamming"  # of Kaldi's filter bank
    front_end: str = "kaldi"  # "kaldi", or "whisper" for Whisper's log-mel frames of a normalised waveform

    @property
    def empty_share(self) -> float:
        """The share of strings without digits."""
        return self.silent_share + self.music_share + self.speech_share


# --- strings --------------------------------------------------------------------------------------------------------


def _draw_length(rng: np.random.Generator, lengths: Mapping[int, float]) -> int:
    weights = np.array(list(lengths.values()), dtype=np.float64)
    return int(rng.choice(list(lengths), p=weights / weights.sum()))


def draw_takes(
    bank: TakeBank, speaker: str, length: int, rng: np.random.Generator, breath_share: float = 0.0
) -> list[int]:
    """Draws takes of one speaker at one tempo with `length` digits in all."""
    single_takes, joined_takes = bank.index[speaker, float(rng.choice(bank.tempos_of[speaker]))]
    in_breaths = bool(joined_takes) and rng.random() < breath_share
    drawn_takes: list[int] = []
    while length:
        fitting = [take for take in joined_takes if len(bank.digits[take]) <= length] if in_breaths else []
        if fitting and rng.random() < 0.8:
            drawn_takes.append(fitting[int(rng.integers(len(fitting)))])
        else:
            takes = single_takes[int(rng.choice(sorted(single_takes)))]
            drawn_takes.append(takes[int(rng.integers(len(takes)))])
        length -= len(bank.digits[drawn_takes[-1]])
    return drawn_takes


def _trimmed(
    sound: NDArray[np.float32], digits: tuple[int, ...], rng: np.random.Generator, options: CorpusOptions
) -> NDArray[np.float32]:
    """Returns the take or a part of it, as voice activity detection and editors cut weak sounds at the edges of
    words.
    """
    voiced = options.voiced_share.get(digits[0], 0.0) if len(digits) == 1 else 0.0
    if voiced and rng.random() < voiced:
        return _voiced(sound, rng, options.consonant_seconds)
    if options.gated_share and rng.random() < options.gated_share:
        return _gated(sound, rng.uniform(*options.gate_db))
    if rng.random() >= options.trimmed_share:
        return sound
    start, end = (int(rng.uniform(0.0, longest) * len(sound)) for longest in options.trim)
    return sound[start : len(sound) - end]


def _loud_part(sound: NDArray[np.float32], below_peak_db: float) -> tuple[int, int]:
    """Returns (first sample, end sample) of the loud part of the sound: from the first to the last 10 ms whose level is
    at most this far below that of the loudest 10 ms.
    """
    from workbench.audio.spans import frame_levels

    levels = frame_levels(sound)
    loud = np.flatnonzero(levels >= levels.max() - below_peak_db)
    return int(loud[0]) * FRAME_SHIFT, (int(loud[-1]) + 1) * FRAME_SHIFT


def _gated(sound: NDArray[np.float32], below_peak_db: float) -> NDArray[np.float32]:
    """Returns the loud part of the sound."""
    start, end = _loud_part(sound, below_peak_db)
    return sound[start:end]


def _voiced(
    sound: NDArray[np.float32], rng: np.random.Generator, consonants: tuple[float, float]
) -> NDArray[np.float32]:
    """Returns the part of the sound that is loud below 1 kHz, with a little of the weak consonants around it.

    One time in four, it keeps all of the sound on one side.
    """
    start, end = _loud_part(filtered(sound, passband(80.0, 1000.0, edge=100.0)), VOICED_DB)
    before, after = (int(rng.uniform(0.0, longest) * SAMPLE_RATE) for longest in consonants)
    side = rng.random()
    first = 0 if side < 0.125 else max(0, start - before)
    return sound[first : len(sound) if side > 0.875 else end + after]


def clean_string(bank: TakeBank, rng: np.random.Generator, options: CorpusOptions) -> DigitString:
    """Draws a string of one speaker, without room, noise or line."""
    human = bool(bank.voices[True]) and (not bank.voices[False] or rng.random() < options.human_share)
    voices = bank.voices[human]
    speaker = voices[int(rng.integers(len(voices)))]
    drawn_takes = draw_takes(bank, speaker, _draw_length(rng, options.lengths), rng, options.breath_share)
    loudness = 10.0 ** (rng.normal(0.0, 1.5, len(drawn_takes)) / 20.0)
    sounds = [
        _trimmed(bank.sound(take), bank.digits[take], rng, options) * np.float32(gain)
        for take, gain in zip(drawn_takes, loudness, strict=True)
    ]

    shortest, longest = GAPS[int(rng.integers(len(GAPS)))]
    gaps = rng.uniform(shortest, longest, len(drawn_takes) - 1)
    pauses = rng.random(len(gaps)) < options.long_pause_share
    gaps[pauses] = rng.uniform(0.5, 1.5, int(pauses.sum()))
    before, after = (int(rng.uniform(*options.lead_seconds) * SAMPLE_RATE) for _ in range(2))
    samples, spans = join(sounds, [int(gap * SAMPLE_RATE) for gap in gaps], before, after)

    ratio = float(np.exp(rng.uniform(-1.0, 1.0) * np.log1p(options.warp))) if rng.random() < 0.85 else 1.0
    samples = warp(samples, ratio)
    if bank.narrow[drawn_takes[0]] and rng.random() < 0.5:
        samples = add_upper_band(samples, rng)
    parts = tuple(bank.digits[take] for take in drawn_takes)
    return DigitString(
        samples=samples,
        digits=tuple(digit for part in parts for digit in part),
        spans=tuple(
            (round(start / ratio), min(round(end / ratio), len(samples)), part)
            for (start, end), part in zip(spans, parts, strict=True)
        ),
        speaker=speaker,
    )


def draw_string(bank: TakeBank, rng: np.random.Generator, options: CorpusOptions | None = None) -> DigitString:
    """Draws one recording for training, with the effects of a random microphone and room."""
    options = options or CorpusOptions()
    kind = rng.random()
    if kind < options.silent_share:
        return silence(rng)
    kind -= options.silent_share
    if kind < options.music_share:
        string = unspoken(rng)
    elif kind - options.music_share < options.speech_share:
        string = other_speech(bank, rng, options.lead_seconds, options.warp)
    else:
        string = clean_string(bank, rng, options)

    def crowd(count: int) -> NDArray[np.float32]:
        return babble(bank, count, rng)

    recorded = distorted(string.samples, string.active, rng, options.augment, crowd)
    return DigitString(recorded, string.digits, string.spans, string.speaker)


# --- features -------------------------------------------------------------------------------------------------------


def log_mel(samples: NDArray[np.float32], window: str = "hamming") -> NDArray[np.float32]:
    """Returns [frames, 80] of the recognisers' front end, before stacking."""
    from workbench.audio.fbank import FbankOptions, fbank

    return fbank(samples, FbankOptions(window=window))


def whisper_log_mel(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns Whisper's log-mel frames [samples // 160, 80] of the waveform with zero mean and unit variance."""
    extracted = _whisper()(
        samples, sampling_rate=SAMPLE_RATE, padding="do_not_pad", truncation=False, do_normalize=True
    )
    return np.ascontiguousarray(extracted["input_features"][0].T, dtype=np.float32)


@functools.lru_cache(maxsize=1)
def _whisper() -> Any:
    from transformers import WhisperFeatureExtractor

    return WhisperFeatureExtractor(feature_size=NUM_MELS, sampling_rate=SAMPLE_RATE, hop_length=FRAME_SHIFT)


def frames_of(samples: NDArray[np.float32], options: CorpusOptions) -> NDArray[np.float32]:
    """Returns the frames [frames, 80] of the front end in the options."""
    if options.front_end == "whisper":
        return whisper_log_mel(samples)
    return log_mel(samples, options.window)


def stacked(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Stacks [frames, 80] to [LFR frames, 560]."""
    from workbench.audio.lfr import stack_frames

    return stack_frames(features, ASR_LFR_M, ASR_LFR_N)
