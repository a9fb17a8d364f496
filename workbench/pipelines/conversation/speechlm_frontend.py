"""The front end of a SpeechLM's audio tower on every runtime: log-mel features, checks of a recording, windows.

The tower's convolutions take chunks of frames, and its attention windows of chunks. This file knows no network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from workbench.audio.whisper_mel import WhisperMel
from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.families.speechlm.parts import SAMPLE_RATE, Tower
from workbench.trace.times import RowTimes

Encoder = TypeVar("Encoder")


def tower_times(tower: Tower) -> Mapping[str, RowTimes]:
    """Returns the times of the rows of a tower's stages (see `workbench.trace.times`); after the convolutions, those of
    whole chunks.
    """
    samples = tower.chunk * tower.mel.hop
    rows = RowTimes(0.0, samples / SAMPLE_RATE / tower.rows(samples))
    return {"tower.mel": RowTimes(0.0, tower.mel.hop / SAMPLE_RATE), "tower.*": rows, "adaptor.*": rows}


def required(encoder: Encoder | None, model: str = "this checkpoint") -> Encoder:
    """Returns the audio encoder; raises `BadInput` if the model has none."""
    if encoder is None:
        raise BadInput(f"{model} has no audio encoder; expected messages of text")
    return encoder


@dataclass(frozen=True, eq=False)
class Windows:
    """How the tower divides a recording."""

    valid: np.ndarray  # int64: which rows after the convolutions, all chunks padded to the longest, are the recording's
    bounds: Sequence[int]  # where the windows of the attention begin, among those rows, and where the last one ends


class TowerFrontend:
    """The front end of a tower."""

    def __init__(self, tower: Tower):
        self.tower = tower
        mel = tower.mel
        self.features = WhisperMel(mel.bins, mel.hop, mel.window, mel.normalise)
        self.shortest = max(mel.hop, mel.window // 2 + 1)  # samples; the edges are reflected by half a window

    def check_length(self, samples: np.ndarray) -> None:
        """Raises `BadInput` for a recording that is too short for the features, or not mono."""
        if samples.ndim != 1 or len(samples) < self.shortest:
            raise BadInput(
                f"the recording has {counted(samples.size, 'sample')} at {SAMPLE_RATE} Hz; expected mono and at least "
                f"{self.shortest} ({1000 * self.shortest / SAMPLE_RATE:.1f} ms)"
            )

    def check(self, samples: np.ndarray) -> None:
        """Raises `BadInput` for a recording that is too short, silent, or holds values that are not numbers."""
        self.check_length(samples)
        if not np.isfinite(samples).all():
            raise BadInput("the recording has values that are not finite (NaN or infinity); expected samples")
        if samples.min() == samples.max():
            raise BadInput("the recording is silent: all its samples are equal; expected speech")

    def check_room(self, samples: np.ndarray, context: int) -> int:
        """Returns the number of positions of a recording; raises `BadInput` if they fill the whole context."""
        rows = self.tower.rows(len(samples))
        if rows >= context:
            raise BadInput(
                f"the recording of {len(samples) / SAMPLE_RATE:.1f} s fills {rows} positions; the model has room for "
                f"{context}, prompt and answer included"
            )
        return rows

    def windows(self, frames: int) -> Windows:
        """Returns the windows of a recording of so many frames.

        Transformers computes the same for Qwen3-Omni's `n_window` of 50. For others it takes 13 rows of each whole
        chunk, which then has more.
        """
        tower = self.tower
        lengths = [min(tower.chunk, frames - first) for first in range(0, frames, tower.chunk)]
        rows = np.array([tower.rows(length * tower.mel.hop) for length in lengths])
        valid = np.flatnonzero(np.arange(rows.max()) < rows[:, None])
        window = int(rows.max()) * (int(tower.settings["n_window_infer"]) // tower.chunk)
        return Windows(valid, [*range(0, int(rows.sum()), window), int(rows.sum())])
