"""Sounds in notebooks: a player that needs no file and no page, and a waveform above it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.display.html import Html, card, element, facts, joined, table
from workbench.display.pictures import picture

MAX_RATE = 2**31 - 1  # Hz that soundfile takes
MAX_BYTES = 3 << 20  # of the WAV file in a player; one and a half minutes at 16 kHz


def wav_file(samples: np.ndarray, sample_rate: int) -> bytes:
    """Returns samples [n], float in -1 ... 1, as a WAV file of 16 bits; louder ones are clipped."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, np.clip(samples, -1.0, 1.0), sample_rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def player(samples: np.ndarray, sample_rate: int, name: str = "the sound") -> Html:
    """Returns an audio player with the samples [n] inside. If they need more than `MAX_BYTES`, it has the beginning
    only, and a sentence below the player says so.
    """
    limit = MAX_BYTES // 2
    content = base64.b64encode(wav_file(samples[:limit], sample_rate)).decode("ascii")
    sound = element(
        "audio", controls="controls", preload="auto", aria_label=name, src=f"data:audio/wav;base64,{content}"
    )
    if len(samples) <= limit:
        return sound
    note = f"The player has the first {limit / sample_rate:.0f} s of {len(samples) / sample_rate:.0f} s."
    return joined((sound, element("p", note, class_="quiet")))


@dataclass(frozen=True, eq=False)
class Sound:
    """Samples [n] to hear in a notebook: float in -1 ... 1, mono. Raises `BadInput` for anything else."""

    samples: np.ndarray
    sample_rate: int  # Hz
    name: str = "sound"

    def __post_init__(self) -> None:
        found = np.asarray(self.samples)
        if found.ndim != 1 or found.dtype.kind != "f":
            raise BadInput(
                f"{self.name} has the shape {found.shape} and the type {found.dtype}; expected float [samples]"
            )
        rate: Any = self.sample_rate
        if isinstance(rate, bool) or not isinstance(rate, (int, np.integer)) or not 0 < rate <= MAX_RATE:
            raise BadInput(
                f"{self.name} has a sample rate of {rate!r:.40}; expected a whole number of Hz from 1 to {MAX_RATE}"
            )
        object.__setattr__(self, "samples", np.nan_to_num(found.astype(np.float32)))

    @property
    def seconds(self) -> float:
        """The length of the sound."""
        return len(self.samples) / self.sample_rate

    def __repr__(self) -> str:
        return f"<Sound {self.name!r}: {self.seconds:.2f} s at {self.sample_rate} Hz>"

    def _repr_html_(self) -> str:
        from workbench.plots.waveform import waveform_figure

        waveform = picture(
            lambda: waveform_figure(self.samples, self.sample_rate, width=7.0, height=1.4), "its waveform"
        )
        about = facts(f"{self.seconds:.2f} s", f"{self.sample_rate} Hz")
        return card(self.name, waveform, player(self.samples, self.sample_rate, self.name), about)


class Sounds(tuple[Sound, ...]):
    """Several sounds, one under another, to be compared by ear."""

    def __new__(cls, sounds: Sequence[Sound]) -> Sounds:
        return super().__new__(cls, tuple(sounds))

    def _repr_html_(self) -> str:
        rows = [
            (each.name, player(each.samples, each.sample_rate, each.name), f"{each.seconds:.2f} s") for each in self
        ]
        return card(f"{len(self)} sounds", table(("sound", "", "length"), rows, words=(0, 1)))
