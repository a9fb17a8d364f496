"""Finds what stands behind the end that a file's header states. Decoders stop there, without an error.

It may be more sound: files that were joined end to end (`cat a.wav b.wav`) have the header of the first, and some
programs state too small a size. It knows WAV, FLAC, AIFF, AU and CAF; `wav_header` corrects wrong sizes of WAV files,
`ogg` and `mpeg` have their own formats. This file decodes nothing.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from workbench.audio.file_view import PatchedFile, kept_in_place
from workbench.system.memory import size as spoken_size

_LEAST = 1024  # bytes; fewer are a tag or a stray tail
_PIECE = 1 << 20  # bytes that are searched at once
_FLAC_STARTS = (b"fLaC\x00\x00\x00\x22", b"fLaC\x80\x00\x00\x22")  # with the first block of metadata, 34 bytes long
_WAV_HEAD = 12  # bytes
_AU_UNKNOWN = 0xFFFFFFFF
_EMPTY = 8  # bytes before the sound in its chunk, at most
_FORM = b"FORM"


def note_on_rest(path: Path) -> str:
    """Returns a sentence about what follows behind the stated end of a file; empty if nothing or only zeros do."""
    with path.open("rb") as file:
        end, size = _stated_end(file, _ENDS)
        file.seek(end)
        if size - end < _LEAST or not file.read(_PIECE).strip(b"\0"):
            return ""
    return f"{spoken_size(size - end)} behind the end that the header states were not read; they may be more sound"


def without_rest(source: Path | BinaryIO) -> PatchedFile | None:
    """Returns a view of the first of joined WAV, AIFF or FLAC files; None for others.

    libsndfile refuses the first two together, and seeks to wrong places in joined FLAC files.
    """
    with kept_in_place(source) as file:
        end, size = _stated_end(file, _MISREAD)
    return PatchedFile(source, end, {}) if end < size else None


def _stated_end(file: BinaryIO, ends: Mapping[bytes, Callable[[BinaryIO, int], int]]) -> tuple[int, int]:
    """Returns where the header of a file says that it ends, and its size; both are the size in other formats."""
    file.seek(0)
    magic = file.read(4)
    size = file.seek(0, io.SEEK_END)
    return (ends[magic](file, size), size) if magic in ends and size >= _WAV_HEAD else (size, size)


def _end_of_riff(file: BinaryIO, size: int) -> int:
    """Returns where a second WAV file begins; the size of the file if there is none."""
    file.seek(0)
    stated = struct.unpack("<4xI", file.read(8))[0]
    for place in (8 + stated + stated % 2, 8 + stated):
        file.seek(place)
        following = file.read(_WAV_HEAD)
        if following.startswith(b"RIFF") and following.endswith(b"WAVE"):
            return place
    return size


def _end_of_flac(file: BinaryIO, size: int) -> int:
    """Returns where a second FLAC stream begins; the size of the file if there is none."""
    place, overlap = 1, len(_FLAC_STARTS[0]) - 1
    while place < size:
        file.seek(place)
        piece = file.read(_PIECE + overlap)
        found = [at for start in _FLAC_STARTS if (at := piece.find(start)) >= 0]
        if found:
            return place + min(found)
        place += _PIECE
    return size


def _end_of_au(file: BinaryIO, size: int) -> int:
    file.seek(4)
    start, stated = struct.unpack(">II", file.read(8))
    return min(start + stated, size) if 0 < stated < _AU_UNKNOWN else size


def _end_of_form(file: BinaryIO, size: int) -> int:
    return _end_of_chunks(file, size, 12, struct.Struct(">4sI"), b"SSND", even=True)


def _end_of_caf(file: BinaryIO, size: int) -> int:
    return _end_of_chunks(file, size, 8, struct.Struct(">4sq"), b"data", even=False)


def _end_of_chunks(file: BinaryIO, size: int, place: int, header: struct.Struct, sound: bytes, even: bool) -> int:
    """Returns where a row of chunks ends: at the end of the file, or before bytes that are no chunk.

    Args:
        place: of the first chunk.
        header: of a chunk: its name, and the bytes behind the header.
        sound: the name of the chunk with the sound: cut if it is larger than the file, of unknown size if it is empty.
        even: whether chunks begin at even places.
    """
    while place + header.size <= size:
        file.seek(place)
        name, length = header.unpack(file.read(header.size))
        end = place + header.size + length
        if name == sound and (length <= _EMPTY or end >= size):
            return size
        if name == _FORM or length < 0 or end > size or not all(0x20 <= byte < 0x7F for byte in name):
            return place
        place = end + (end % 2 if even else 0)
    return size


_MISREAD = {b"RIFF": _end_of_riff, _FORM: _end_of_form, b"fLaC": _end_of_flac}
_ENDS = {**_MISREAD, b".snd": _end_of_au, b"caff": _end_of_caf}
