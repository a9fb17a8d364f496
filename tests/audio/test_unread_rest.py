"""Files with more behind the end that their header states: joined files, and headers with too small a size."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.sound_files import RATE, tone
from workbench.audio.read import read, samples_to_int16
from workbench.audio.track import open_track
from workbench.audio.unread_rest import note_on_rest
from workbench.core.errors import BadInput

CONTAINERS = ("WAV", "FLAC", "AIFF", "AU", "CAF")
SIZES = {"AIFF": (b"SSND", ">I"), "AU": (b".snd\x00\x00\x00\x18", ">I"), "CAF": (b"data", ">q")}  # a size is behind it
NOTE = "behind the end that the header states were not read"


def written(path: Path, container: str) -> bytes:
    soundfile.write(path, tone(2.0), RATE, format=container, subtype="PCM_16")
    return path.read_bytes()


@pytest.mark.parametrize("container", CONTAINERS)
def test_joined_files_are_noted_and_whole_ones_are_not(container: str, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    content = written(path, container)
    assert read(path).notes == ()
    path.write_bytes(content + bytes(5000))
    assert note_on_rest(path) == "", "zeros are no sound"
    path.write_bytes(content + content)
    assert NOTE in note_on_rest(path)
    recording = read(path)
    assert recording.seconds == 2.0 and [NOTE in note for note in recording.notes] == [True]
    assert recording.source_format == f"{container} PCM_16"
    track = open_track(path)
    assert track.frames == 2 * RATE and [NOTE in note for note in track.notes] == [True]
    samples = samples_to_int16(recording.samples)
    for first in (30_000, 2_000, 31_500, 17_000, 100):  # seeks, back too
        np.testing.assert_array_equal(track.read(first, 3000), samples[first : first + 3000])
    track.close()


@pytest.mark.parametrize("container", SIZES)
def test_too_small_a_size_is_noted_and_an_unknown_one_is_not(container: str, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    content = bytearray(written(path, container))
    name, form = SIZES[container]
    place = content.index(name) + len(name)
    struct.pack_into(form, content, place, 32_000)
    path.write_bytes(content)
    [note] = read(path).notes
    assert NOTE in note and note.startswith("32 kB")
    struct.pack_into(form, content, place, 0)
    path.write_bytes(content)
    assert note_on_rest(path) == ""
    struct.pack_into(form, content, place, 1_000_000)
    path.write_bytes(content)
    assert note_on_rest(path) == ""


def test_second_flac_stream_is_found_across_the_border_of_two_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talk"
    content = written(path, "FLAC")
    path.write_bytes(content + content)
    for piece in range(len(content) - 9, len(content) + 1):
        monkeypatch.setattr("workbench.audio.unread_rest._PIECE", piece)
        assert NOTE in note_on_rest(path), piece


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_damaged_chunk_that_leads_before_the_file_raises_nothing_in_a_callback(tmp_path: Path) -> None:
    """Such an exception would be printed with its traceback."""
    path = tmp_path / "damaged.aiff"
    path.write_bytes(written(path, "AIFF").replace(b"SSND", b"\x80SND"))
    with pytest.raises(BadInput, match="holds no samples"):
        read(path)
