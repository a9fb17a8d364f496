"""The takes of a training set in one array at 16 kHz, with an index by speaker (`TakeBank`)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import SAMPLE_RATE
from workbench.training.data.augment import change_tempo
from workbench.training.data.digits import Take


@dataclass(frozen=True, eq=False)
class TakeBank:
    """All takes at 16 kHz in one array, with an index by speaker; made by `TakeBank.of`."""

    samples: NDArray[np.int16]  # all takes, scaled to full range, one after another
    bounds: NDArray[np.int64]  # [takes + 1], the start of each take
    digits: tuple[tuple[int, ...], ...]  # of each take
    speakers: tuple[str, ...]  # of each take
    human: NDArray[np.bool_]  # of each take
    tempo: NDArray[np.float32]  # tempo of each take
    narrow: NDArray[np.bool_]  # whether nothing above 4 kHz was recorded

    @staticmethod
    def of(takes: Sequence[Take], tempos: Sequence[float] = (1.0,)) -> TakeBank:
        """Resamples the takes to 16 kHz; stores human takes once for every tempo."""
        import soxr

        sounds: list[NDArray[np.int16]] = []
        rows: list[tuple[Take, float]] = []
        for take in takes:
            for tempo in tempos if take.human and take.digits else (1.0,):
                sound = change_tempo(take.samples, tempo, take.sample_rate)
                sound = soxr.resample(sound, take.sample_rate, SAMPLE_RATE, "HQ")
                peak = float(np.abs(sound).max()) + 1e-9
                sounds.append(np.rint(sound * (32767.0 / peak)).astype(np.int16))
                rows.append((take, tempo))
        return TakeBank(
            samples=np.concatenate(sounds),
            bounds=np.concatenate([[0], np.cumsum([len(sound) for sound in sounds])]).astype(np.int64),
            digits=tuple(take.digits for take, _ in rows),
            speakers=tuple(take.speaker for take, _ in rows),
            human=np.array([take.human for take, _ in rows]),
            tempo=np.array([tempo for _, tempo in rows], dtype=np.float32),
            narrow=np.array([take.sample_rate <= 8000 for take, _ in rows]),
        )

    def sound(self, take: int) -> NDArray[np.float32]:
        """Returns the samples of one take, with peak 1."""
        return self.samples[self.bounds[take] : self.bounds[take + 1]].astype(np.float32) / np.float32(32767.0)

    @functools.cached_property
    def voices(self) -> Mapping[bool, tuple[str, ...]]:
        """Names of the human (True) and the synthetic (False) speakers of digits."""
        return {
            kind: tuple(
                sorted(
                    {
                        speaker
                        for speaker, digits, human in zip(self.speakers, self.digits, self.human, strict=True)
                        if digits and bool(human) is kind
                    }
                )
            )
            for kind in (True, False)
        }

    @functools.cached_property
    def index(self) -> Mapping[tuple[str, float], tuple[Mapping[int, list[int]], list[int]]]:
        """Maps (speaker, tempo) to (takes of each digit alone, takes of several digits)."""
        index: dict[tuple[str, float], tuple[dict[int, list[int]], list[int]]] = {}
        for take, (speaker, tempo, digits) in enumerate(zip(self.speakers, self.tempo, self.digits, strict=True)):
            if not digits:
                continue
            single_takes, joined_takes = index.setdefault((speaker, float(tempo)), ({}, []))
            if len(digits) == 1:
                single_takes.setdefault(digits[0], []).append(take)
            else:
                joined_takes.append(take)
        return index

    @functools.cached_property
    def others(self) -> tuple[int, ...]:
        """The takes of speech without digits."""
        return tuple(take for take, digits in enumerate(self.digits) if not digits)

    @functools.cached_property
    def tempos_of(self) -> Mapping[str, tuple[float, ...]]:
        """The tempos of each speaker's takes."""
        return {name: tuple(sorted(t for s, t in self.index if s == name)) for name in set(self.speakers)}
