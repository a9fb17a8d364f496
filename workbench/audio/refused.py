"""Explains in plain words why a file that no decoder takes cannot be read, from its first bytes.

The decoders' own messages describe their internals ("possibly a pipe?"). This file decodes nothing.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.formats.other_files import other_kind

HEAD_BYTES = 4096
NO_SOUND = "matches no streams"  # in the report of ffmpeg on a file without sound
EXPECTED = "expected WAV, FLAC, MP3, OGG, M4A or another sound file"
MIN_RATE, MAX_RATE = 1_000, 1_000_000  # Hz; a rate outside comes from a broken header

# First bytes of audio containers.
_CONTAINERS = (
    (b"OggS", "an OGG file"),
    (b"fLaC", "a FLAC file"),
    (b"ID3", "an MP3 file"),
    (b"FORM", "an AIFF file"),
    (b"\x1aE\xdf\xa3", "a Matroska or WebM file"),
    (b"caff", "a CAF file"),
    (b".snd", "an AU file"),
)
_UNKNOWN = "nothing in it is known as sound"
_WAV = (b"RIFF", b"RF64")
_ADDRESS = re.compile(r"(?:^|/)(?:https?|ftp|s3|file):/", re.IGNORECASE)


def check_path(source: str | os.PathLike[str]) -> str:
    """Returns the path; raises `BadInput` for an empty one, which Python takes for the working directory."""
    path = os.fspath(source)
    if not path:
        raise BadInput("the path of the recording is empty; expected a sound file")
    return path


def is_address(path: Path) -> bool:
    """Returns whether a path was an address such as https://example.org/a.wav, absolute or not."""
    return _ADDRESS.search(path.as_posix()) is not None


def check_rate(name: str, rate: int) -> None:
    """Raises `BadInput` for a sample rate in Hz that no recording has."""
    if not MIN_RATE <= rate <= MAX_RATE:
        raise BadInput(f"{name} states a sample rate of {rate} Hz, where {MIN_RATE} to {MAX_RATE} Hz are expected")


def no_samples_error(name: str) -> BadInput:
    """Returns the error for a recording of length zero."""
    return BadInput(f"{name} holds no samples, so there is no sound to read")


def head_of(path: Path) -> bytes:
    """Returns the first bytes of a file."""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def may_be_mpeg(path: Path, head: bytes) -> bool:
    """Returns whether libsndfile may take the file for MPEG audio, judged by its first bytes or by its name."""
    synchronised = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0
    return head.startswith(b"ID3") or synchronised or path.suffix.lower() in (".mp3", ".mp2", ".mp1", ".mpeg", ".mpga")


def reason_of(head: bytes, report: str = "") -> str:
    """Returns why no decoder could read a file, judged by its first bytes and by the error of ffmpeg.

    Args:
        report: the error of ffmpeg.
    """
    kind = other_kind(head)
    if kind:
        return f"it is {kind}"
    if NO_SOUND in report:
        return "it has pictures or other tracks, and none with sound"
    if head[:4] in _WAV and head[8:12] == b"WAVE":
        return _wav_reason(head)
    container = next((kind for first, kind in _CONTAINERS if head.startswith(first)), None)
    if container is None and head[4:8] == b"ftyp":
        container = "an MP4 or M4A file"
    if container:
        return f"it begins like {container}, but is damaged or incomplete"
    if is_text(head):
        return "it is a text"
    return _UNKNOWN


def is_known(head: bytes) -> bool:
    """Returns whether the first bytes of a file show what it is."""
    return reason_of(head) != _UNKNOWN


def _wav_reason(head: bytes) -> str:
    """Returns what is wrong with the header of a WAV file."""
    damaged = "it begins like a WAV file, but is damaged or incomplete"
    at = head.find(b"fmt ", 12)
    if at < 0 or len(head) < at + 24:
        return damaged
    codec, channels, rate, _, _, bits = struct.unpack("<HHIIHH", head[at + 8 : at + 24])
    if not channels or channels > 1024:
        return f"its WAV header states {channels} channels"
    if not MIN_RATE <= rate <= MAX_RATE:
        return f"its WAV header states a sample rate of {rate} Hz, where {MIN_RATE} to {MAX_RATE} Hz are usual"
    if codec in (1, 3) and bits not in (8, 16, 24, 32, 64):
        return f"its WAV header states {bits} bits a sample"
    return damaged if codec in (1, 3) else f"its WAV header states a coding (number {codec:#06x}) that is not known"


def is_text(head: bytes) -> bool:
    """Returns whether the bytes are readable UTF-8 text; the last character may be incomplete."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4 or len(head) < HEAD_BYTES:
            return False
        text = head[: error.start].decode("utf-8")
    return all(char.isprintable() or char in "\r\n\t\f" for char in text)


def not_sound_error(name: str, head: bytes, ffmpeg_asked: bool = True, report: str = "") -> BadInput:
    """Returns the error for a file that no decoder can read."""
    absent = "" if ffmpeg_asked else " (ffmpeg, which reads more formats, is not installed)"
    return BadInput(f"{name} is not a sound file that can be read: {reason_of(head, report)}; {EXPECTED}{absent}")
