"""A recording of several takes in a row (`DigitString`, `join`), and where each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import SAMPLE_RATE
from workbench.training.data.digits import words_of


@dataclass(frozen=True, eq=False)
class DigitString:
    """A recording of a string of digits, with the position of each."""

    samples: NDArray[np.float32]  # mono, 16 kHz
    digits: tuple[int, ...]
    spans: tuple[tuple[int, int, tuple[int, ...]], ...]  # of every take: (first sample, end sample, its digits)
    speaker: str

    @property
    def text(self) -> str:
        """The reference text, for example "three seven one"."""
        return words_of(self.digits)

    @property
    def active(self) -> NDArray[np.bool_]:
        """Marks the samples inside a take."""
        inside = np.zeros(len(self.samples), dtype=np.bool_)
        for start, end, _ in self.spans:
            inside[start:end] = True
        return inside


def join(
    sounds: Sequence[NDArray[np.float32]], gaps: Sequence[int], before: int, after: int
) -> tuple[NDArray[np.float32], list[tuple[int, int]]]:
    """Returns (samples, (start, end) of every sound): the sounds in a row with silent gaps; negative gaps make
    overlaps.

    `gaps` has one entry less than `sounds`; all counts are in samples. The sounds' edges fade within 4 ms.
    """
    starts, position = [], before
    for sound, gap in zip(sounds, [*gaps, 0], strict=True):
        starts.append(position)
        position = max(position + len(sound) + gap, position)
    end = max(start + len(sound) for start, sound in zip(starts, sounds, strict=True))
    samples = np.zeros(end + after, dtype=np.float32)
    for start, sound in zip(starts, sounds, strict=True):
        edge = min(SAMPLE_RATE // 250, len(sound) // 2)
        ramp = np.linspace(0.0, 1.0, edge, dtype=np.float32)
        samples[start : start + len(sound)] += sound
        samples[start : start + edge] -= sound[:edge] * (1.0 - ramp)
        samples[start + len(sound) - edge : start + len(sound)] -= sound[len(sound) - edge :] * ramp
    return samples, [(start, start + len(sound)) for start, sound in zip(starts, sounds, strict=True)]
