"""Counts the blocks of sound in a Creative Voice file (VOC). libsndfile takes the headers between them for sound."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from workbench.audio.file_view import kept_in_place

_END = 0  # the type of the last block, which has no length
_SOUND = (1, 2, 9)  # types of blocks with samples; 2 goes on with the form of the one before
_START = 20  # where the header says where the first block begins


def has_several_blocks(source: Path | BinaryIO) -> bool:
    """Returns whether a VOC file has more than one block of sound; an open file stays in place."""
    with kept_in_place(source) as file:
        file.seek(_START)
        start = file.read(2)
        place, found = (struct.unpack("<H", start)[0], 0) if len(start) == 2 else (0, 0)
        while place and found < 2:
            file.seek(place)
            head = file.read(4)
            if len(head) < 4 or head[0] == _END:
                return False
            found += head[0] in _SOUND
            place += 4 + int.from_bytes(head[1:], "little")
        return found > 1
