"""What is understood of the reports of ffmpeg, in the words of version 7 and later, and the times of films."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.support.sound_files import needs_ffmpeg, tone, wav_bytes
from workbench.audio import ffmpeg
from workbench.audio.read import read
from workbench.audio.track import open_track
from workbench.core.errors import BadInput


def pretended_ffmpeg(folder: Path, monkeypatch: pytest.MonkeyPatch, report: str, sound: bytes, status: int) -> Path:
    """A file that goes to a program which decodes it into this sound, and reports this."""
    (folder / "report").write_text(report)
    (folder / "sound").write_bytes(sound)
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/sh\ncat '{folder}/report' >&2\ncat '{folder}/sound'\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setattr(ffmpeg, "ffmpeg_path", lambda: str(program))
    (folder / "talk.mkv").write_bytes(b"\x1aE\xdf\xa3 and more")
    return folder / "talk.mkv"


def test_components_of_ffmpeg_are_left_out_of_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = "[aist#0:0/aac @ 0x5581] [dec:aac @ 0x5582] Error submitting packet to decoder: Invalid data found\n"
    path = pretended_ffmpeg(tmp_path, monkeypatch, report, wav_bytes(tone(1.0), subtype="FLOAT"), 0)
    [note] = read(path).notes
    assert "(Error submitting packet to decoder: Invalid data found)" in note


def test_video_without_sound_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = (
        "Stream map '0:a:0' matches no streams.\nTo ignore this, add a trailing '?' to the map.\n"
        "Failed to set value '0:a:0' for option 'map': Invalid argument\nError opening output files: Invalid argument\n"
    )
    with pytest.raises(BadInput, match="it has pictures or other tracks, and none with sound"):
        read(pretended_ffmpeg(tmp_path, monkeypatch, report, b"", 234))


@needs_ffmpeg
@pytest.mark.parametrize("name", ["film.mkv", "film.mp4", "film.ts"])
@pytest.mark.parametrize("late", [0.0, 2.0])
def test_times_are_those_of_a_film_whose_sound_begins_late(name: str, late: float, tmp_path: Path) -> None:
    path, size = tmp_path / name, "testsrc=d=4:s=64x64:r=10"
    command = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", size, "-itsoffset", str(late), "-f", "lavfi"]
    command += ["-i", "sine=d=2:r=16000", "-map", "0:v", "-map", "1:a", "-c:v", "mpeg4", "-c:a", "mp2", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    recording, track = read(path), open_track(path)
    assert abs(recording.seconds - 2.0 - late) < 0.2
    first = np.flatnonzero(np.abs(recording.samples) > 0.01)[0] / recording.sample_rate
    assert abs(first - late) < 0.1
    assert abs(track.frames / track.rate - recording.seconds) < 0.01
    track.close()
    note = "the sound begins 2.0 s after the pictures, so the times are those of the film"
    assert recording.notes == ((note,) if late else ())
