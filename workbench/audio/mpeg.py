"""Lets libsndfile read MPEG audio to its end where the file states no length, or the length of its first part only.

An MP3 file states its length in a Xing or Info frame, if it has one. For other files libsndfile estimates the length
from the bitrate of the beginning, and reads no further, also where a WAV file holds MP3. It estimates nothing if it
does not know the size of the file. Files that were joined end to end have the Xing frame of the first one, whose length
then says nothing about the rest.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from workbench.audio.file_view import FileView, kept_in_place
from workbench.audio.muted import muted_stderr

if TYPE_CHECKING:
    import soundfile

MPEG = "MP3"  # soundfile's name of MPEG audio of every layer
_ENDLESS = 1 << 62  # bytes; libsndfile takes such a size for unknown
_TAG = b"ID3"  # begins a tag before the sound
_LATEST = 200  # bytes of a frame within which a Xing frame names itself
_LENGTHS = 120  # bytes after that name: the lengths, and places in the file
_FRAME = 4096  # bytes; more than a frame has
_HAS_FRAMES, _HAS_BYTES = 1, 2  # flags of a Xing frame
_ALIKE = 0xFFFE0C00  # bits of a frame's header that are the same in all frames: version, layer, sample rate


def to_its_end(file: soundfile.SoundFile, source: Path | BinaryIO) -> soundfile.SoundFile:
    """Returns open MPEG audio as it is if it states its whole length; otherwise opened again, with an endless length.

    Args:
        source: what `file` was opened from, at its beginning.
    """
    import soundfile

    start = _after_length_of_first_part(source)
    place = 0 if isinstance(source, Path) else source.tell()
    with muted_stderr():
        unsized = soundfile.SoundFile(_UnsizedFile(source, start))
    if unsized.frames != file.frames:
        file.close()
        return unsized
    unsized.close()
    if not isinstance(source, Path):
        source.seek(place)  # where the decoder goes on to read
    return file


def within_wav(source: Path | BinaryIO, start: int, end: int) -> soundfile.SoundFile:
    """Returns the open MPEG audio that lies between two places of a WAV file, in bytes."""
    import soundfile

    with muted_stderr():
        return soundfile.SoundFile(_UnsizedFile(source, start, end))


def _after_length_of_first_part(source: Path | BinaryIO) -> int:
    """Returns where the sound begins after a Xing frame that counts only the first of several joined files; else 0."""
    with kept_in_place(source) as file:
        first = _after_tag(file, 0)
        file.seek(first)
        head = file.read(_FRAME)
        at = max(head.find(name, 0, _LATEST) for name in (b"Xing", b"Info"))
        if at < 0 or len(head) < _FRAME:
            return 0
        flags = int.from_bytes(head[at + 4 : at + 8], "big")
        if not flags & _HAS_BYTES:
            return 0
        size = int.from_bytes(head[at + 8 + 4 * (flags & _HAS_FRAMES) :][:4], "big")
        file.seek(_after_tag(file, first + size))
        following = file.read(4)
        if size == 0 or not _is_alike(following, head):
            return 0
        places = range(at + _LENGTHS, len(head) - 4)
        return next((first + at for at in places if _is_alike(head[at:], head)), 0)


def _is_alike(header: bytes, other: bytes) -> bool:
    """Returns whether two headers of frames may be of one stream."""
    one, two = (int.from_bytes(each[:4], "big") & _ALIKE for each in (header, other))
    return one == two and one >> 21 == 0x7FF


def _after_tag(file: BinaryIO, place: int) -> int:
    """Returns where an ID3v2 tag at this place ends; the place itself if there is none."""
    file.seek(place)
    head = file.read(10)
    if len(head) < 10 or not head.startswith(_TAG):
        return place
    size = 0
    for byte in head[6:]:
        size = size << 7 | byte & 0x7F
    return place + len(head) + size


class _UnsizedFile(FileView):
    """A view of a file from `start` on, whose end (at byte `end` of the file, if given) cannot be sought."""

    def __init__(self, source: Path | BinaryIO, start: int, end: int = _ENDLESS) -> None:
        super().__init__(source)
        self._start, self._end = start, end
        self._file.seek(start)
        self._at_end = False

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at_end = whence == io.SEEK_END
        if not self._at_end:
            self._move(offset + (self._start if whence == io.SEEK_SET else self._file.tell()))
        return self.tell()

    def tell(self) -> int:
        return _ENDLESS if self._at_end else self._file.tell() - self._start

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        content = self._file.read(max(0, min(len(buffer), self._end - self._file.tell())))
        buffer[: len(content)] = content
        return len(content)
