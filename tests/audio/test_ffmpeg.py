"""What is understood of the reports of ffmpeg, in the words of version 7 and later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sound_files import tone, wav_bytes
from workbench.audio import ffmpeg
from workbench.audio.read import read
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
