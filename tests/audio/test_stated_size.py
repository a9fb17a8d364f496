"""Files that end before the size that their header states: each container whole, cut, and of an unknown size."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import soundfile

from tests.support.sound_files import RATE, tone
from workbench.audio import stated_size
from workbench.audio.read import read
from workbench.audio.stated_size import sign_of_cut

CUT = "its end is missing"
SIZES = {"AIFF": (4, ">I"), "AU": (8, ">I"), "W64": (16, "<Q")}  # where the size stands


def written(path: Path, container: str) -> bytes:
    soundfile.write(path, tone(2.0), RATE, format=container, subtype="PCM_16")
    return path.read_bytes()


@pytest.mark.parametrize("container", [*SIZES, "NIST"])
def test_whole_and_cut_files_of_libsndfile(container: str, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    content = written(path, container)
    assert read(path).notes == ()
    path.write_bytes(content[: len(content) * 3 // 4])
    recording = read(path)
    assert 1.4 < recording.seconds < 1.6
    assert recording.notes == (f"the file is cut or damaged ({CUT}); what could be decoded was read",)


@pytest.mark.parametrize("container", SIZES)
def test_size_that_stands_for_an_unknown_one_is_no_sign_of_a_cut(container: str, tmp_path: Path) -> None:
    path = tmp_path / "piped"
    content = bytearray(written(path, container))
    place, form = SIZES[container]
    for size in (0, (1 << 8 * struct.calcsize(form)) - 1, (1 << 8 * struct.calcsize(form) - 1) - 1):
        struct.pack_into(form, content, place, size)
        path.write_bytes(content)
        assert sign_of_cut(path) == ""
    struct.pack_into(form, content, place, len(content) + 1000)
    path.write_bytes(content)
    assert sign_of_cut(path) == CUT


def box(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), name) + content


def fragmented(version: int, *sizes: int) -> bytes:
    """The beginning of a fragmented MP4 file with an index of fragments of these sizes."""
    times = struct.pack(">IIQQHH" if version else ">IIIIHH", 1, 16000, 0, 4, 0, len(sizes))
    entries = b"".join(struct.pack(">III", size, 16000, 1 << 31) for size in sizes)
    index = box(b"sidx", bytes([version, 0, 0, 0]) + times + entries)
    return box(b"ftyp", b"iso5") + box(b"moov", bytes(100)) + index + bytes(4)


def asf(size: int) -> bytes:
    header = stated_size._ASF_HEADER + struct.pack("<Q", 30) + bytes(6)
    return header + stated_size._ASF_DATA + struct.pack("<Q", size) + bytes(size - 24)


@pytest.mark.parametrize(
    "content",
    [
        fragmented(0, 1000, 500) + box(b"moof", bytes(992)) + box(b"mdat", bytes(492)),
        fragmented(1, 1000, 500) + box(b"moof", bytes(992)) + box(b"mdat", bytes(492)),
        asf(2000),
        b"RIFF" + struct.pack("<I", 2004) + b"AVI " + bytes(2000),
    ],
    ids=["mp4", "mp4 of 64 bits", "asf", "avi"],
)
def test_whole_and_cut_files_of_ffmpeg(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    path.write_bytes(content)
    assert sign_of_cut(path) == ""
    path.write_bytes(content[:-500])
    assert sign_of_cut(path) == CUT


@pytest.mark.parametrize(
    "content",
    [
        fragmented(0, 1000)[:130],
        box(b"ftyp", b"iso5") + box(b"sidx", b""),
        box(b"ftyp", b"iso5") + box(b"moof", bytes(8)) + fragmented(0, 1000),
        struct.pack(">I4s", 0, b"ftyp") + bytes(100),
        asf(100)[:40],
        b"NIST_1A\n",
        b"NIST_1A\n   1024\nsample_count -i many\nend_head\n",
        b"FORM",
        b".snd",
        b"RIFF\xff\xff\x00\x00WAVE",
        b"text",
        b"",
    ],
)
def test_file_that_states_no_size_gets_no_sign(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    path.write_bytes(content)
    assert sign_of_cut(path) == ""
