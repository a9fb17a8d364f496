"""States the size of the sound in CAF and AU files that leave it open, as programs do that write to a pipe or crash.

libsndfile refuses such a CAF file, although the format allows it, and takes such an AU file for an empty one.
"""

from __future__ import annotations

import contextlib
import io
import struct
from pathlib import Path
from typing import BinaryIO

from workbench.audio.file_view import PatchedFile

_AU_MAGIC, _CAF_MAGIC = b".snd", b"caff"
_AU_UNKNOWN = bytes(4 * [0xFF])  # the size of AU that stands for an unknown one
_CHUNK = struct.Struct(">4sq")  # of CAF: name, and size in bytes
_UNSTATED = -1
_MAX_CHUNKS = 64  # before the sound


def with_stated_size(source: Path | BinaryIO) -> PatchedFile | None:
    """Returns a view of a file that states the size of its sound; None for other formats, and if it does so itself.

    An open file is at its beginning afterwards.
    """
    with contextlib.ExitStack() as opened:
        file = opened.enter_context(source.open("rb")) if isinstance(source, Path) else source
        end = file.seek(0, io.SEEK_END)
        patches = _of_caf(file, end) or _of_au(file, end)
        file.seek(0)
    return PatchedFile(source, end, patches) if patches else None


def _of_au(file: BinaryIO, end: int) -> dict[int, bytes]:
    file.seek(0)
    head = file.read(12)
    if len(head) < 12 or not head.startswith(_AU_MAGIC):
        return {}
    start, size = struct.unpack(">4x2I", head)
    return {8: _AU_UNKNOWN} if not size and start < end else {}


def _of_caf(file: BinaryIO, end: int) -> dict[int, bytes]:
    file.seek(0)
    if not file.read(8).startswith(_CAF_MAGIC):
        return {}
    place = 8
    for _ in range(_MAX_CHUNKS):
        file.seek(place)
        head = file.read(_CHUNK.size)
        if len(head) < _CHUNK.size:
            break
        name, size = _CHUNK.unpack(head)
        if name == b"data":
            return {place: _CHUNK.pack(name, end - place - _CHUNK.size)} if size == _UNSTATED else {}
        if not 0 <= size <= end:
            break
        place += _CHUNK.size + size
    return {}
