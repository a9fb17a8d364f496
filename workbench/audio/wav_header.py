"""Compares the length that a WAV header states with the bytes that the file really holds.

Recorders that crash, programs that write to a pipe and careless editors leave a `data` chunk whose size is too large,
too small, zero or the placeholder 0xFFFFFFFF. This file finds such a chunk and offers the same file with the correct
size, as a readable object for libsndfile. RF64 files have their sizes of 64 bits in a chunk before. This file decodes
nothing, and leaves every other container alone.
"""

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from workbench.audio.file_view import PatchedFile

_STREAMING = (0, 0x7FFFFFFF, 0xFFFFFFFF)  # sizes that programs write when they do not know the length yet
_UNKNOWN_64 = 1 << 62  # bytes; larger sizes of 64 bits stand for an unknown one
_MAX_CHUNK_BYTES = 0xFFFFFFFF  # largest size in bytes that 32 bits can state
_MPEG = (0x50, 0x55)  # codings
_SIZE_OF_HEADER = 8  # bytes: four letters and a 32-bit size
# Names of chunks that programs write behind the sound.
_KNOWN = {
    *(b"LIST", b"INFO", b"id3 ", b"ID3 ", b"bext", b"iXML", b"aXML", b"axml", b"_PMX", b"fact", b"PEAK", b"JUNK"),
    *(b"PAD ", b"FLLR", b"cue ", b"plst", b"smpl", b"inst", b"acid", b"cart", b"afsp", b"DISP", b"umid", b"levl"),
}
_SLACK_MS = 10  # fewer bytes than this behind the data chunk are a stray tail, not audio


def shortfall_note(promised: float, seconds: float) -> str:
    """Returns a remark for the user on a file that is shorter than its header states; both lengths in seconds."""
    digits = 1 if f"{promised:.1f}" != f"{seconds:.1f}" else 3
    stated, held = f"{promised:.{digits}f} s", f"{seconds:.{digits}f} s"
    return f"the header promises {stated} but the file holds {held}; the {held} were read"


@dataclass(frozen=True)
class WavLayout:
    """The position and length of the audio in a RIFF/WAVE or RF64 file; sizes in bytes."""

    data_offset: int
    promised: int  # the size in the header of the data chunk
    present: int  # from the start of the data to its real end, whole sample frames only
    bytes_per_second: int
    long_sizes: int = 0  # where an RF64 file has its sizes of 64 bits; 0 for RIFF

    @property
    def honest(self) -> bool:
        return self.promised == self.present

    @property
    def streaming(self) -> bool:
        """Whether the stated size is a placeholder from a program that did not know the length."""
        if self.long_sizes:
            return self.promised == 0 or self.promised >= _UNKNOWN_64
        return self.promised in _STREAMING or self.promised >= 0xFFFFFFFF - 1024

    @property
    def misleading(self) -> bool:
        """Whether the stated size is wrong by more than a moment."""
        return self.streaming or abs(self.promised - self.present) >= _slack(self.bytes_per_second)

    @property
    def repairable(self) -> bool:
        """Whether the header can state the true length."""
        return self.long_sizes > 0 or self.present <= _MAX_CHUNK_BYTES - self.data_offset

    def note(self, seconds: float | None) -> str:
        """Returns a remark for the user: what the header states, and the `seconds` that were read, if known."""
        stated = "no length" if self.streaming else "a wrong length"
        if seconds is None:
            return f"the header states {stated}; all that the file holds was read"
        if self.streaming or not self.bytes_per_second:
            return f"the header states {stated}; the {seconds:.1f} s that the file holds were read"
        return shortfall_note(self.promised / self.bytes_per_second, seconds)


def wav_layout(file: BinaryIO) -> WavLayout | None:
    """Returns the layout of a WAVE file (RIFF or RF64) with a format and a data chunk; None for every other file."""
    file.seek(0)
    riff = file.read(12)
    if len(riff) < 12 or riff[:4] not in (b"RIFF", b"RF64") or riff[8:] != b"WAVE":
        return None
    file.seek(0, io.SEEK_END)
    file_size = file.tell()
    codec, bytes_per_second, block_align, long_sizes, long_size = 0, 0, 0, 0, 0
    for name, offset, size in _chunks(file, 12):
        if name == b"fmt " and size >= 16:
            file.seek(offset)
            fields = file.read(16)
            if len(fields) < 16:
                return None
            codec, bytes_per_second, block_align = struct.unpack("<H6xIH2x", fields)
        elif name == b"ds64" and size >= 24 and riff[:4] == b"RF64":
            file.seek(offset + 8)
            long_sizes, long_size = offset, int.from_bytes(file.read(8), "little")
        elif name == b"data":
            if block_align == 0 or (riff[:4] == b"RF64" and not long_sizes):
                return None
            size = long_size if long_sizes else size
            present = _sound_bytes(file, offset, size, file_size, _slack(bytes_per_second))
            # A partial last sample frame is not audio; a correct size stays unchanged. MPEG has frames of any length.
            present = present if present == size or codec in _MPEG else present - present % block_align
            return WavLayout(offset, size, present, bytes_per_second, long_sizes)
    return None


def _slack(bytes_per_second: int) -> int:
    """Returns the bytes of a moment."""
    return max(1, bytes_per_second * _SLACK_MS // 1000)


def _chunks(file: BinaryIO, offset: int) -> list[tuple[bytes, int, int]]:
    """Returns name, content offset and stated size of each chunk from `offset` up to and including the data chunk."""
    found: list[tuple[bytes, int, int]] = []
    while True:
        file.seek(offset)
        header = file.read(_SIZE_OF_HEADER)
        if len(header) < _SIZE_OF_HEADER:
            return found
        name, size = struct.unpack("<4sI", header)
        found.append((name, offset + _SIZE_OF_HEADER, size))
        if name == b"data":
            return found
        offset += _SIZE_OF_HEADER + size + size % 2


def _sound_bytes(file: BinaryIO, offset: int, promised: int, file_size: int, slack: int) -> int:
    """Returns how many bytes from `offset` on are audio: the stated size if the file confirms it, else all the rest."""
    available = file_size - offset
    if promised >= available:
        return available
    position = offset + promised
    if promised and file_size - position < slack:
        return promised
    # After a data chunk with a correct size, only other chunks follow up to the end of the file.
    for start in (position + promised % 2, position):
        if _only_chunks(file, start, file_size, known=not promised):
            return promised
    return available


def _only_chunks(file: BinaryIO, position: int, file_size: int, known: bool) -> bool:
    """Returns whether nothing but chunks lies between `position` and the end of the file.

    A chunk of a known name may be cut; any other one is taken for sound then, and everywhere if `known` is true.
    """
    while position + _SIZE_OF_HEADER <= file_size:
        file.seek(position)
        name, size = struct.unpack("<4sI", file.read(_SIZE_OF_HEADER))
        position += _SIZE_OF_HEADER + size + size % 2
        if name not in _KNOWN and (known or not all(0x20 <= byte < 0x7F for byte in name)):
            return False
        if position > file_size + 1:
            return name in _KNOWN
    return True


class RepairedWav(PatchedFile):
    """A view of a WAV file with the correct sizes in its header."""

    def __init__(self, source: Path | BinaryIO, layout: WavLayout) -> None:
        if not layout.repairable:
            raise ValueError("the sound is longer than a 32-bit WAV header can state")
        length = layout.data_offset + layout.present
        if layout.long_sizes:
            patches = {layout.long_sizes: struct.pack("<QQ", length - 8, layout.present)}
        else:
            sizes = struct.pack("<I", length - 8), struct.pack("<I", layout.present)
            patches = {4: sizes[0], layout.data_offset - 4: sizes[1]}
        super().__init__(source, length, patches)
