"""Finds what is missing in an Ogg file (Vorbis, Opus, FLAC in Ogg): decoders skip damaged parts without an error.

An Ogg file is a row of pages. Each has a checksum and a number, and the first and the last one of a stream are marked.
In a chain, as radio stations send it, new streams follow the end of the ones before. This file decodes no sound.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO

from workbench.audio.file_view import kept_in_place

MAGIC = b"OggS"
_HEADER = 27  # bytes before the table of segments
_MAX_TABLE_BYTES = 255
_FIRST_PAGE, _LAST_PAGE = 2, 4  # flags
_PIECE = 1 << 16  # bytes that are searched at once for the next page
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))  # of each byte, its bits in reverse order


def sign_of_damage(path: Path) -> str:
    """Returns what is wrong with the pages of an Ogg file; empty for a whole one, and for other files."""
    with path.open("rb") as file:
        return _sign(file) if file.read(len(MAGIC)) == MAGIC else ""


def is_chain(source: Path | BinaryIO) -> bool:
    """Returns whether an Ogg file has streams that begin after others; an open file stays in place."""
    place, begun = 0, False  # whether a page was found that continues a stream
    with kept_in_place(source) as file:
        while True:
            file.seek(place)
            head = file.read(_HEADER + _MAX_TABLE_BYTES)
            if len(head) < _HEADER or not head.startswith(MAGIC):
                return False
            if begun and head[5] & _FIRST_PAGE:
                return True
            begun = begun or not head[5] & _FIRST_PAGE
            place += _HEADER + head[26] + sum(head[_HEADER : _HEADER + head[26]])


def _sign(file: BinaryIO) -> str:
    unfinished: dict[bytes, tuple[int, bool]] = {}  # by stream: the number of its last page, and whether that had sound
    damaged, place = False, 0
    while place >= 0:
        file.seek(place)
        head = file.read(_HEADER + _MAX_TABLE_BYTES)
        table = head[_HEADER : _HEADER + head[26]] if len(head) >= _HEADER else b""
        size = _HEADER + len(table) + sum(table)
        file.seek(place)
        page = file.read(size)
        if not head.startswith(MAGIC) or len(page) < size or _checksum(page) != page[22:26]:
            following = _next_page(file, place + 1)
            # After the last page of all streams, anything may follow; a page at the end of the file may be cut.
            damaged = damaged or following >= 0
            place = following
            continue
        stream, number = page[14:18], int.from_bytes(page[18:22], "little")
        sound = any(page[6:14])  # pages of a stream's header have the position 0
        last, had_sound = unfinished.get(stream, (number - 1, False))
        damaged = damaged or (had_sound and number != last + 1)
        unfinished[stream] = number, sound
        if page[5] & _LAST_PAGE:
            del unfinished[stream]
        place += size
    if damaged:
        return "parts of it are damaged or missing"
    return "its end is missing" if unfinished else ""


def _next_page(file: BinaryIO, place: int) -> int:
    """Returns where the next page may begin; -1 if there is none."""
    file.seek(place)
    remainder = b""
    while piece := file.read(_PIECE):
        found = (remainder + piece).find(MAGIC)
        if found >= 0:
            return place - len(remainder) + found
        place += len(piece)
        remainder = (remainder + piece)[-(len(MAGIC) - 1) :]
    return -1


def _checksum(page: bytes) -> bytes:
    """Returns the checksum of a page as its header stores it: zlib's polynomial with the bits in reverse order."""
    mirrored = (page[:22] + bytes(4) + page[26:]).translate(_MIRRORED)
    found = zlib.crc32(mirrored, 0xFFFFFFFF) ^ 0xFFFFFFFF  # begins and ends without zlib's inversion
    return found.to_bytes(4, "big").translate(_MIRRORED)
