"""A recording that can be read at any place, as mono int16 at its own rate. It is never in memory as a whole.

libsndfile seeks in the file itself. MP3, damaged Ogg files, and what only ffmpeg reads, are decoded once into a
nameless temporary file. Players and pictures take their samples here, so both have the same clock.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from workbench.audio.constants import INT16_SCALE
from workbench.audio.libsndfile import UNSTATED, is_mpeg
from workbench.audio.ogg import sign_of_damage
from workbench.audio.read import blocks_of, opened
from workbench.audio.refused import no_samples_error
from workbench.core.errors import BadInput
from workbench.system.memory import size
from workbench.system.tempdirs import nameless_file

if TYPE_CHECKING:
    import soundfile

MAX_SECONDS = 12 * 3600.0  # of a recording; what comes after is not shown
MAX_DECODED = 1 << 30  # bytes of the temporary file of a recording that libsndfile does not read
_OVERLAP = {"VORBIS": 8192}  # by subtype: samples after a seek that are wrong, as they lack the block before
_EXACT = ("PCM_16", "PCM_U8", "PCM_S8", "ULAW", "ALAW")  # subtypes that int16 holds without loss


class Track(Protocol):
    """What `open_track` returns."""

    rate: int  # Hz
    frames: int  # as the file states; there may be fewer
    notes: tuple[str, ...]  # remarks for the user

    def read(self, first: int, count: int) -> np.ndarray:
        """Returns the samples [first, first + count) as int16; fewer at the end of the recording, or of what can be
        decoded.
        """

    def close(self) -> None:
        """Closes the file."""


def open_track(path: str | Path) -> Track:
    """Returns the recording at that path. Raises `BadInput` for a file without sound.

    MP3 and formats that only ffmpeg reads are decoded first, which takes about a second for ten minutes.
    """
    file, notes = opened(Path(path))
    if file is not None and _is_exact(file, Path(path)):
        return _Seekable(Path(path), file, notes)
    if file is not None:
        file.close()
    return _Decoded(Path(path))


def _is_exact(file: soundfile.SoundFile, path: Path) -> bool:
    """Returns whether a seek finds the sample that `read` has at that place."""
    stated = 0 < file.frames < UNSTATED
    return stated and not is_mpeg(file) and not sign_of_damage(path)  # `read` closes up what is missing


def mono_int16(block: np.ndarray) -> np.ndarray:
    """Returns float samples [n, channels] with full scale 1 as int16 [n]: averaged, rounded and clipped. NaN and
    infinity become 0.
    """
    mixed = block[:, 0] if block.shape[1] == 1 else block.mean(axis=1, dtype=np.float32)
    scaled = np.nan_to_num(mixed * np.float32(INT16_SCALE), nan=0.0, posinf=0.0, neginf=0.0)
    return np.clip(np.rint(scaled), -INT16_SCALE, INT16_SCALE - 1).astype(np.int16)


class _Seekable:
    def __init__(self, path: Path, file: soundfile.SoundFile, notes: list[str]):
        self._path = path
        self._file = file
        self._sound: _Decoded | None = None  # of a damaged file
        self._lock = threading.Lock()
        self._exact = file.subtype in _EXACT and file.channels == 1
        self.rate = int(file.samplerate)
        self.frames = min(int(file.frames), round(MAX_SECONDS * self.rate))
        self.notes = (*notes, *_cut(file.frames, self.frames, self.rate))

    def read(self, first: int, count: int) -> np.ndarray:
        import soundfile

        count = min(count, self.frames - first)
        if first < 0 or count <= 0:
            return np.empty(0, dtype=np.int16)
        with self._lock:
            try:
                if self._file.closed:
                    return np.empty(0, dtype=np.int16)
                if self._sound is not None:
                    return self._sound.read(first, count)
                if self._file.tell() != first:
                    before = min(_OVERLAP.get(self._file.subtype, 0), first)
                    self._file.seek(first - before)
                    self._file.read(before)
                if self._exact:
                    found: np.ndarray = self._file.read(count, dtype="int16")
                    return found
                block = self._file.read(count, dtype="float32", always_2d=True)
            except soundfile.LibsndfileError:
                # A read that fails loses the samples before the damage, and a seek that fails all later ones.
                with contextlib.suppress(BadInput):  # not one sample can be decoded
                    self._sound = _Decoded(self._path)
                return np.empty(0, dtype=np.int16) if self._sound is None else self._sound.read(first, count)
        return mono_int16(block)

    def close(self) -> None:
        with self._lock:
            self._file.close()
            if self._sound is not None:
                self._sound.close()


class _Decoded:
    """A recording that is decoded from its start to its end, once."""

    def __init__(self, path: Path):
        blocks, self.rate, close = blocks_of(path)
        self._file = nameless_file()
        self.frames = 0
        largest = min(round(MAX_SECONDS * self.rate), MAX_DECODED // 2)
        self.notes: tuple[str, ...] = ()
        try:
            for block in blocks:
                samples = mono_int16(block[: largest - self.frames])
                self._file.write(samples.tobytes())
                self.frames += len(samples)
                if self.frames >= largest:
                    self.notes = (
                        f"the first {self.frames / self.rate / 3600:.1f} h are shown, which take {size(MAX_DECODED)}",
                    )
                    break
            self._file.flush()
        finally:
            close()
        if not self.frames:
            self._file.close()
            raise no_samples_error(path.name)

    def read(self, first: int, count: int) -> np.ndarray:
        count = min(count, self.frames - first)
        if first < 0 or count <= 0 or self._file.closed:
            return np.empty(0, dtype=np.int16)
        return np.frombuffer(os.pread(self._file.fileno(), 2 * count, 2 * first), dtype=np.int16)

    def close(self) -> None:
        self._file.close()


def _cut(stated: int, decoded: int, rate: int) -> list[str]:
    if stated <= decoded:
        return []
    return [f"the first {decoded / rate / 3600:g} h of {stated / rate / 3600:.1f} h are shown"]
