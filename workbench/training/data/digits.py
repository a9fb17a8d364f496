"""Recordings of single spoken digits, and who spoke them.

Reads folders laid out like the Free Spoken Digit Dataset. This file knows nothing of features, noise or networks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workbench.core.errors import BadInput
from workbench.system.folders import files_below

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

_TAKE_NAME = re.compile(r"(?P<digit>[0-9])_(?P<speaker>.+)_(?P<number>[0-9]+)\.wav", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Take:
    """One utterance of one speaker: usually one digit, sometimes a few in one breath."""

    speaker: str
    digits: tuple[int, ...]  # in the order they were said
    samples: NDArray[np.float32]  # mono, [-1, 1]
    sample_rate: int
    human: bool = True  # false for a speech synthesiser
    number: int = 0  # distinguishes a speaker's takes of the same digit

    @property
    def digit(self) -> int:
        """The digit of a take with exactly one."""
        (digit,) = self.digits
        return digit


def words_of(digits: Sequence[int]) -> str:
    """Returns the reference text: `(3, 7, 1)` becomes "three seven one"."""
    return " ".join(WORDS[digit] for digit in digits)


def load_fsdd(directory: str | Path) -> list[Take]:
    """Reads all takes below a folder of `SPEAKER/DIGIT_SPEAKER_NUMBER.wav` or flat `DIGIT_SPEAKER_NUMBER.wav` files.

    They are sorted by speaker, digit and number, independent of the file system's order. Other files are ignored.
    Raises `BadInput` if the folder is missing or has no such recording, or if one of them cannot be read.
    """
    import soundfile

    directory = Path(directory)
    if not directory.is_dir():
        raise BadInput(f"{directory} is not a folder; expected one with recordings named DIGIT_SPEAKER_NUMBER.wav")
    takes = []
    for path in files_below(directory):
        match = _TAKE_NAME.fullmatch(path.name)
        if match is None:
            continue
        try:
            samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        except (soundfile.LibsndfileError, OSError) as error:
            raise BadInput(f"{path} cannot be read as a sound file: {error}") from error
        if not len(samples):
            raise BadInput(f"{path} holds no samples; expected a recording of one digit")
        takes.append(
            Take(
                speaker=match["speaker"],
                digits=(int(match["digit"]),),
                samples=np.ascontiguousarray(samples.mean(axis=1, dtype=np.float32)),
                sample_rate=int(rate),
                number=int(match["number"]),
            )
        )
    if not takes:
        raise BadInput(
            f"{directory} holds no recordings named DIGIT_SPEAKER_NUMBER.wav (for example 7_george_12.wav); "
            "expected the folder of the Free Spoken Digit Dataset"
        )
    return sorted(takes, key=lambda take: (take.speaker, take.digits, take.number))


def split_by_speaker(takes: Sequence[Take], held_out: str | None = None) -> tuple[list[Take], list[Take]]:
    """Returns (takes of all other speakers, takes of the held-out speaker); without a name, of the last in alphabetical
    order.

    Raises `BadInput` if that speaker is missing, or is the only one.
    """
    speakers = sorted({take.speaker for take in takes})
    if len(speakers) < 2:
        raise BadInput(f"a split by speaker needs recordings of at least two speakers, found {len(speakers)}")
    name = speakers[-1] if held_out is None else held_out
    if name not in speakers:
        raise BadInput(f"there is no speaker {name!r} among {', '.join(speakers)}")
    return [take for take in takes if take.speaker != name], [take for take in takes if take.speaker == name]
