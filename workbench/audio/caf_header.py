"""States the size of the sound in a CAF file that leaves it open, as programs do that write to a pipe.

The format allows this for the last chunk of a file, but libsndfile does not read such a file.
"""

from __future__ import annotations

import contextlib
import io
import struct
from pathlib import Path
from typing import BinaryIO

from workbench.audio.file_view import PatchedFile

_MAGIC = b"caff"
_CHUNK = struct.Struct(">4sq")  # name, and size in bytes
_UNSTATED = -1
_MOST_CHUNKS = 64  # before the sound


def with_stated_size(source: Path | BinaryIO) -> PatchedFile | None:
    """Returns a view of a CAF file that states the size of its sound; None for other files, and if it does so itself.

    An open file is at its beginning afterwards.
    """
    with contextlib.ExitStack() as opened:
        file = opened.enter_context(source.open("rb")) if isinstance(source, Path) else source
        place, size = _unstated_size(file)
        file.seek(0)
    return PatchedFile(source, place + _CHUNK.size + size, {place: _CHUNK.pack(b"data", size)}) if place else None


def _unstated_size(file: BinaryIO) -> tuple[int, int]:
    """Returns where the chunk with the sound begins, and its true size; (0, 0) if that is stated."""
    file.seek(0)
    if not file.read(8).startswith(_MAGIC):
        return 0, 0
    end = file.seek(0, io.SEEK_END)
    place = 8
    for _ in range(_MOST_CHUNKS):
        file.seek(place)
        head = file.read(_CHUNK.size)
        if len(head) < _CHUNK.size:
            break
        name, size = _CHUNK.unpack(head)
        if name == b"data":
            return (place, end - place - _CHUNK.size) if size == _UNSTATED else (0, 0)
        if size < 0:
            break
        place += _CHUNK.size + size
    return 0, 0
