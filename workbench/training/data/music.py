"""Synthetic music and tones: recordings in which a recogniser of digits must write nothing.

`music` draws chords, a melody and drums, each with some probability; `tones` draws beeps, keys of a telephone and
sirens. Both return mono float32 samples at 16 kHz with peak 1. They imitate no instrument closely, and do not sing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import SAMPLE_RATE

Samples = NDArray[np.float32]

SCALES = ((0, 2, 4, 5, 7, 9, 11), (0, 2, 3, 5, 7, 8, 10), (0, 2, 4, 7, 9), (0, 3, 5, 7, 10))  # semitones over the key
KEYPAD = ((697, 770, 852, 941), (1209, 1336, 1477, 1633))  # Hz; a telephone's key is one of each (ITU-T Q.23)


def music(rng: np.random.Generator, seconds: float) -> Samples:
    """Returns `seconds` of music: at least one of chords, melody and drums, in one key and one tempo."""
    count = int(seconds * SAMPLE_RATE)
    beat = 60.0 / rng.uniform(60.0, 180.0)
    key = rng.uniform(40.0, 60.0)  # MIDI number of the key's lowest note: 82 to 262 Hz
    scale = SCALES[int(rng.integers(len(SCALES)))]
    parts: list[Callable[[np.random.Generator, int, float, float, Sequence[int]], Samples]] = [chords, melody, drums]
    instruments = [part for part in parts if rng.random() < 0.6] or [parts[int(rng.integers(len(parts)))]]
    mixed = np.zeros(count, dtype=np.float32)
    for part in instruments:
        mixed += np.float32(rng.uniform(0.3, 1.0)) * part(rng, count, beat, key, scale)
    return mixed / np.float32(np.abs(mixed).max() + 1e-9)


def chords(rng: np.random.Generator, count: int, beat: float, key: float, scale: Sequence[int]) -> Samples:
    """Returns chords of three or four notes of the scale, each held for one, two or four beats."""
    samples = np.zeros(count, dtype=np.float32)
    timbre, position = _timbre(rng), 0.0
    length = beat * float(rng.choice([1, 2, 4]))
    while position * SAMPLE_RATE < count:
        root = int(rng.integers(len(scale)))
        for place in range(int(rng.integers(3, 5))):
            _add(samples, position, _note(_degree(key + 12, scale, root + 2 * place), length, timbre, rng))
        position += length
    return samples / np.float32(np.abs(samples).max() + 1e-9)


def melody(rng: np.random.Generator, count: int, beat: float, key: float, scale: Sequence[int]) -> Samples:
    """Returns a line of single notes that mostly goes in small steps, with rests, and sometimes with vibrato."""
    samples = np.zeros(count, dtype=np.float32)
    timbre, position, degree = _timbre(rng), 0.0, int(rng.integers(0, 10))
    vibrato = float(rng.uniform(0.0, 0.012)) * float(rng.random() < 0.5)
    while position * SAMPLE_RATE < count:
        length = beat * float(rng.choice([0.25, 0.5, 1.0, 1.5, 2.0]))
        degree = int(np.clip(degree + rng.integers(-3, 4), -3, 17))
        if rng.random() < 0.85:
            pitch = _degree(key + 12, scale, degree)
            _add(samples, position, _note(pitch, length * float(rng.uniform(0.5, 1.1)), timbre, rng, vibrato))
        position += length
    return samples / np.float32(np.abs(samples).max() + 1e-9)


def drums(rng: np.random.Generator, count: int, beat: float, key: float, scale: Sequence[int]) -> Samples:
    """Returns a repeated pattern of a bass drum, a snare and a hi-hat."""
    samples = np.zeros(count, dtype=np.float32)
    strokes = (_kick, _snare, _hat)
    pattern = rng.random((len(strokes), 8)) < np.array([[0.35], [0.3], [0.7]])
    for step in range(int(count / SAMPLE_RATE / beat * 2) + 1):
        for stroke, on in zip(strokes, pattern[:, step % 8], strict=True):
            if on:
                _add(samples, step * beat / 2, stroke(rng) * np.float32(rng.uniform(0.6, 1.0)))
    return samples / np.float32(np.abs(samples).max() + 1e-9)


def tones(rng: np.random.Generator, seconds: float) -> Samples:
    """Returns `seconds` of beeps, of telephone keys, or of a siren."""
    count = int(seconds * SAMPLE_RATE)
    time = np.arange(count, dtype=np.float32) / np.float32(SAMPLE_RATE)
    kind = int(rng.integers(3))
    if kind == 0:  # a siren: the frequency swings
        middle, depth, speed = rng.uniform(300.0, 2000.0), rng.uniform(0.1, 0.6), rng.uniform(0.2, 4.0)
        frequency = middle * (1.0 + depth * np.sin(2 * np.pi * speed * time))
        return np.sin(2 * np.pi * np.cumsum(frequency) / SAMPLE_RATE).astype(np.float32)
    samples = np.zeros(count, dtype=np.float32)
    on, off = rng.uniform(0.05, 0.5), rng.uniform(0.05, 0.6)
    pitches: list[float] = [float(rng.uniform(200.0, 3000.0))]
    position = float(rng.uniform(0.0, 0.3))
    while position < seconds:
        if kind == 1:
            pitches = [float(rng.choice(row)) for row in KEYPAD]
        length = np.arange(int(on * SAMPLE_RATE), dtype=np.float32) / np.float32(SAMPLE_RATE)
        _add(samples, position, sum(np.sin(2 * np.pi * pitch * length) for pitch in pitches) * np.float32(0.5))
        position += on + off
    return samples


def _degree(key: float, scale: Sequence[int], degree: int) -> float:
    """Returns the frequency in Hz of a degree of the scale, in any octave."""
    octave, step = divmod(degree, len(scale))
    return float(440.0 * 2.0 ** ((key + 12 * octave + scale[step] - 69.0) / 12.0))


def _timbre(rng: np.random.Generator) -> tuple[NDArray[np.float32], float, float]:
    """Returns the levels of the harmonics, the attack in seconds and the decay per second of an instrument."""
    harmonics = int(rng.integers(1, 14))
    levels = np.arange(1, harmonics + 1, dtype=np.float32) ** np.float32(-rng.uniform(0.5, 2.5))
    levels *= rng.uniform(0.2, 1.0, harmonics).astype(np.float32)
    return levels, float(rng.uniform(0.002, 0.08)), float(rng.choice([0.0, 1.0, 3.0, 8.0]))


def _note(
    pitch: float,
    seconds: float,
    timbre: tuple[NDArray[np.float32], float, float],
    rng: np.random.Generator,
    vibrato: float = 0.0,
) -> Samples:
    levels, attack, decay = timbre
    time = np.arange(max(int(seconds * SAMPLE_RATE), 2), dtype=np.float32) / np.float32(SAMPLE_RATE)
    phase = 2 * np.pi * pitch * (time + vibrato / 30.0 * np.sin(2 * np.pi * 5.5 * time))
    sound = np.zeros(len(time), dtype=np.float32)
    for number, level in enumerate(levels, start=1):
        if number * pitch < 7800.0:
            sound += level * np.sin(number * phase + rng.uniform(0, 6.28)).astype(np.float32)
    envelope = np.minimum(time / np.float32(attack), 1.0) * np.exp(-decay * time)
    return sound * envelope * np.minimum((time[-1] - time) / np.float32(0.02), 1.0)


def _kick(rng: np.random.Generator) -> Samples:
    time = np.arange(int(0.2 * SAMPLE_RATE), dtype=np.float32) / np.float32(SAMPLE_RATE)
    sweep = 45.0 + 90.0 * np.exp(-time * 30.0)
    return (np.sin(2 * np.pi * np.cumsum(sweep) / SAMPLE_RATE) * np.exp(-time * 18.0)).astype(np.float32)


def _snare(rng: np.random.Generator) -> Samples:
    time = np.arange(int(0.18 * SAMPLE_RATE), dtype=np.float32) / np.float32(SAMPLE_RATE)
    hiss = rng.standard_normal(len(time), dtype=np.float32) * np.float32(0.5)
    return (hiss + np.sin(2 * np.pi * 190.0 * time).astype(np.float32) * 0.5) * np.exp(-time * 25.0)


def _hat(rng: np.random.Generator) -> Samples:
    time = np.arange(int(0.07 * SAMPLE_RATE), dtype=np.float32) / np.float32(SAMPLE_RATE)
    hiss = np.diff(rng.standard_normal(len(time) + 1, dtype=np.float32)) * np.float32(0.35)
    return hiss * np.exp(-time * np.float32(rng.uniform(40.0, 90.0)))


def _add(samples: Samples, seconds: float, sound: Samples) -> None:
    """Adds the sound to the samples from `seconds` on; cuts what does not fit."""
    start = int(seconds * SAMPLE_RATE)
    length = min(len(sound), len(samples) - start)
    if length > 0:
        samples[start : start + length] += sound[:length]
