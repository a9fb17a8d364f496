"""Finds files that end before the size that their header states. Decoders read them without an error.

It knows AIFF, AU, W64, NIST, AVI, ASF and fragmented MP4. `wav_header` and `ogg` have their own formats. ffmpeg
itself reports the missing end of other MP4 files, of Matroska, and of files that are cut inside a packet. Streams (MPEG
transport streams, ADTS, AMR, MP3 without a Xing frame) state no size, so nothing shows a cut between two packets.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_HEAD = 4096  # bytes
_SLACK = 16  # bytes; some programs count the header of a chunk twice
# Programs that write to a pipe state a size like these, as they do not know it yet.
_UNKNOWN_32, _UNKNOWN_64 = 0x7F000000, 1 << 62
_ASF_HEADER = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
_ASF_DATA = bytes.fromhex("3626b2758e66cf11a6d900aa0062ce6c")
_W64_RIFF = bytes.fromhex("726966662e91cf11a5d628db04c10000")
_MAX_BOXES = 64  # boxes of an MP4 file before its first fragment


def sign_of_cut(path: Path) -> str:
    """Returns that the end of a file is missing; empty if it has the stated size, and if it states none."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEAD)
        stated = next((end(head, file) for first, end in _ENDS if head.startswith(first)), 0)
        if head[4:8] in (b"ftyp", b"styp"):
            stated = _end_of_fragments(file, size)
    return "its end is missing" if stated > size + _SLACK else ""


def _known(size: int, start: int, unknown: int = _UNKNOWN_32) -> int:
    """Returns where `size` bytes from `start` on end; 0 for a size that stands for an unknown one."""
    return start + size if 0 < size < unknown else 0


def _end_of_form(head: bytes, file: BinaryIO) -> int:
    return _known(int.from_bytes(head[4:8], "big"), 8)


def _end_of_au(head: bytes, file: BinaryIO) -> int:
    return _known(int.from_bytes(head[8:12], "big"), int.from_bytes(head[4:8], "big"))


def _end_of_w64(head: bytes, file: BinaryIO) -> int:
    return _known(int.from_bytes(head[16:24], "little"), 0, _UNKNOWN_64)


def _end_of_riff(head: bytes, file: BinaryIO) -> int:
    return _known(int.from_bytes(head[4:8], "little"), 8) if head[8:12] == b"AVI " else 0


def _end_of_asf(head: bytes, file: BinaryIO) -> int:
    start = int.from_bytes(head[16:24], "little")
    if start >= _UNKNOWN_64:
        return 0
    file.seek(start)
    data = file.read(24)
    return _known(int.from_bytes(data[16:], "little"), start, _UNKNOWN_64) if data.startswith(_ASF_DATA) else 0


def _end_of_nist(head: bytes, file: BinaryIO) -> int:
    fields = dict(re.findall(rb"^(\w+) -\w+ (.+?) *$", head.partition(b"end_head")[0], re.MULTILINE))
    if b"," in fields.get(b"sample_coding", b""):
        return 0  # compressed
    try:
        start = int(head.split(b"\n")[1])
        sizes = [int(fields[name]) for name in (b"sample_count", b"channel_count", b"sample_n_bytes")]
    except (IndexError, KeyError, ValueError):
        return 0
    return _known(sizes[0] * sizes[1] * sizes[2], start, _UNKNOWN_64)


_ENDS: tuple[tuple[bytes, Callable[[bytes, BinaryIO], int]], ...] = (
    (b"FORM", _end_of_form),
    (b".snd", _end_of_au),
    (_W64_RIFF, _end_of_w64),
    (b"RIFF", _end_of_riff),
    (_ASF_HEADER, _end_of_asf),
    (b"NIST_1A\n", _end_of_nist),
)


def _end_of_fragments(file: BinaryIO, size: int) -> int:
    """Returns where the fragments of an MP4 file end by its first index of them (`sidx`); 0 if there is none."""
    place = 0
    for _ in range(_MAX_BOXES):
        file.seek(place)
        head = file.read(16)
        length, name = int.from_bytes(head[:4], "big"), head[4:8]
        if length == 1:
            length = int.from_bytes(head[8:], "big")
        if name in (b"moof", b"mdat") or length < 8 or place + length > size:
            return 0
        if name == b"sidx":
            file.seek(place + 8)
            return _end_of_index(file.read(length - 8), place + length)
        place += length
    return 0


def _end_of_index(index: bytes, start: int) -> int:
    """Returns where the last fragment of an index ends.

    Args:
        start: where the index ends in the file.
    """
    version = index[0] if index else 0
    fields = struct.Struct(">12xQQ2xH" if version else ">12xII2xH")  # time, first offset, number of fragments
    if len(index) < fields.size:
        return 0
    _, offset, count = fields.unpack_from(index)
    lengths = struct.unpack_from(f">{3 * count}I", index, fields.size) if len(index) >= fields.size + 12 * count else ()
    return _known(offset + sum(each & 0x7FFFFFFF for each in lengths[::3]), start, _UNKNOWN_64)
