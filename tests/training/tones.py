"""Speakers whose digits are pure tones, so that a test can hear which digit lies where."""

import numpy as np

from workbench.training.data.digits import Take

TONES_HZ = tuple(400 + 250 * digit for digit in range(10))


def tone(digit: int, seconds: float, sample_rate: int, factor: float = 1.0) -> np.ndarray:
    """Returns the tone of a digit, `factor` times higher, at half of full scale."""
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    return (0.5 * np.sin(2 * np.pi * TONES_HZ[digit] * factor * time)).astype(np.float32)


def loudest_digit(samples: np.ndarray, sample_rate: int = 16_000) -> int:
    """Returns the digit whose tone is loudest."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 1 << 15))
    loudest = np.argmax(spectrum) * sample_rate / (1 << 15)
    return int(np.argmin(np.abs(np.array(TONES_HZ) - loudest)))


def tone_takes(*speakers: str, takes: int = 2, human: bool = True, sample_rate: int = 8000) -> list[Take]:
    """Returns digits as tones of 0.2 s and more; a synthetic speaker also has "one two" without a pause."""
    bank = [
        Take(speaker, (digit,), tone(digit, 0.2 + 0.05 * number, sample_rate), sample_rate, human, number)
        for speaker in speakers
        for digit in range(10)
        for number in range(takes)
    ]
    if not human:
        breath = np.concatenate([tone(1, 0.2, sample_rate), tone(2, 0.2, sample_rate)])
        bank += [Take(speaker, (1, 2), breath, sample_rate, False, takes) for speaker in speakers]
    return bank
