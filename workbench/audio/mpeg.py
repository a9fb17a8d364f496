"""Lets libsndfile read MPEG audio that states no length up to its end.

An MP3 file states its length in a Xing or Info frame, if it has one. For other files libsndfile estimates the length
from the bitrate of the beginning, and reads no further. It estimates nothing if it does not know the size of the file.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from workbench.audio.muted import muted_stderr

if TYPE_CHECKING:
    import soundfile

MPEG = "MP3"  # soundfile's name of MPEG audio of every layer
_ENDLESS = 1 << 62  # bytes; libsndfile takes such a size for unknown


def without_estimate(file: soundfile.SoundFile, source: Path | BinaryIO) -> soundfile.SoundFile:
    """Returns open MPEG audio as it is if it states its length; otherwise opened again, with an endless length."""
    import soundfile

    place = 0 if isinstance(source, Path) else source.tell()
    with muted_stderr():
        unsized = soundfile.SoundFile(_UnsizedFile(source))
    if unsized.frames != file.frames:
        file.close()
        return unsized
    unsized.close()
    if not isinstance(source, Path):
        source.seek(place)  # where the decoder goes on to read
    return file


class _UnsizedFile(io.RawIOBase):
    """A read-only, seekable file object whose end cannot be found. It closes a file that it has opened by its path."""

    def __init__(self, source: Path | BinaryIO) -> None:
        self._own = isinstance(source, Path)
        self._file: BinaryIO = source.open("rb") if isinstance(source, Path) else source
        self._file.seek(0)
        self._at_end = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at_end = whence == io.SEEK_END
        return _ENDLESS if self._at_end else self._file.seek(offset, whence)

    def tell(self) -> int:
        return _ENDLESS if self._at_end else self._file.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if self._own and not self.closed:
            self._file.close()
        super().close()
