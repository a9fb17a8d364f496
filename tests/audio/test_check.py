"""The quick check of a recording by its first block: it raises the same errors as the full reader."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile

from workbench.audio import libsndfile
from workbench.audio import read as reading
from workbench.audio.check import check_sound
from workbench.core.errors import BadInput


@pytest.mark.parametrize("name", ["", "none.wav", "folder", "text.wav", "empty.ogg", "slow.wav", "nan.wav"])
def test_sound_check_raises_the_same_error_as_the_reader(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.wav").write_text("this is no sound\n" * 20)
    soundfile.write(tmp_path / "empty.ogg", np.zeros(0), 16000)
    soundfile.write(tmp_path / "slow.wav", np.zeros(100), 10)
    soundfile.write(tmp_path / "nan.wav", np.full(100, np.nan), 16000, subtype="FLOAT")
    with pytest.raises(BadInput) as read:
        reading.read(name)
    with pytest.raises(BadInput) as checked:
        check_sound(name)
    assert str(checked.value) == str(read.value)


def test_sound_check_decodes_only_the_first_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile.write(tmp_path / "long.wav", np.zeros((1000, 2)), 16000)
    monkeypatch.setattr(libsndfile, "BLOCK", 20)
    read_at_once: list[int] = []
    inner = soundfile.SoundFile.read

    def counted(self: soundfile.SoundFile, frames: int, **how: object) -> np.ndarray:
        read_at_once.append(frames)
        return inner(self, frames, **how)

    monkeypatch.setattr(soundfile.SoundFile, "read", counted)
    check_sound(tmp_path / "long.wav")
    assert len(read_at_once) == 1


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs the ffmpeg program")
def test_video_without_sound_is_reported_as_having_no_sound_track(tmp_path: Path) -> None:
    path = tmp_path / "silent.mkv"
    picture = ["-f", "lavfi", "-i", "color=s=16x16", "-frames:v", "1"]
    subprocess.run(["ffmpeg", "-v", "error", *picture, path], check=True, stdin=subprocess.DEVNULL)
    with pytest.raises(BadInput, match="read: it has pictures or other tracks, and none with sound; expected WAV"):
        check_sound(path)
