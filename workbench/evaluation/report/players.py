"""The sound of a few recordings as small files for players inside a page, with limits on length and size."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.evaluation.report.columns import Columns
from workbench.evaluation.rows import Utterance

MAX_SECONDS = 30.0  # seconds of one recording
MAX_BYTES = 12 << 20  # bytes of all players of a page; a third more in the file, as base64

SoundOf = Callable[[Utterance], tuple[np.ndarray, int]]
"""Returns an utterance's samples [n], float, and their rate in Hz; raises `WorkbenchError` or `OSError` without any."""


@dataclass(frozen=True)
class Player:
    """The sound of a recording as an address for an audio element; or why there is none."""

    address: str = ""
    note: str = ""  # a sentence


def players(columns: Columns, rows: Iterable[int], sound_of: SoundOf, largest: int = MAX_BYTES) -> dict[int, Player]:
    """Returns a player for each row, in that order, until together they take `largest` bytes."""
    player_of: dict[int, Player] = {}
    bytes_left = largest
    for row in rows:
        if row in player_of:
            continue
        if bytes_left <= 0:
            player_of[row] = Player(note="The players above fill the room that this file has for sound.")
            continue
        try:
            samples, rate = sound_of(columns.utterances[row])
        except (WorkbenchError, OSError) as error:
            player_of[row] = Player(note=f"The sound is not here: {error}")
            continue
        content = flac(samples[: int(MAX_SECONDS * rate)], rate)
        bytes_left -= len(content)
        cut = len(samples) > MAX_SECONDS * rate
        note = f"The player has the first {MAX_SECONDS:g} s of {len(samples) / rate:.0f} s." if cut else ""
        player_of[row] = Player(f"data:audio/flac;base64,{base64.b64encode(content).decode('ascii')}", note)
    return player_of


def flac(samples: np.ndarray, rate: int) -> bytes:
    """Returns samples [n], float in -1 ... 1, as a FLAC file of 16 bits; louder ones are clipped."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, np.clip(np.nan_to_num(samples), -1.0, 1.0), rate, format="FLAC", subtype="PCM_16")
    return file.getvalue()
