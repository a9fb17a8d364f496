"""Creative Voice files: one block of sound, several, and no whole header."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.support.sound_files import RATE, int16_samples, tone, wav_bytes
from workbench.audio import ffmpeg
from workbench.audio.read import read
from workbench.audio.voc import has_several_blocks

SAMPLES = (tone(1.0) * 32767).astype("<i2")


def block(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + struct.pack("<I", len(content))[:3] + content


def sound(samples: np.ndarray) -> bytes:
    return block(9, struct.pack("<IBBHI", RATE, 16, 1, 4, 0) + samples.tobytes())


def voc(*blocks: bytes) -> bytes:
    return b"Creative Voice File\x1a" + struct.pack("<HHH", 26, 0x0114, 0x111F) + b"".join(blocks) + b"\0"


def test_only_blocks_of_sound_count() -> None:
    text = block(5, b"a text\0")
    assert not has_several_blocks(io.BytesIO(voc(text, sound(SAMPLES), text)))
    assert has_several_blocks(io.BytesIO(voc(text, sound(SAMPLES[:10]), text, sound(SAMPLES[10:]))))
    whole = voc(sound(SAMPLES), sound(SAMPLES))
    for size in (0, 21, 24, 28, 2000, len(whole) // 2):
        assert not has_several_blocks(io.BytesIO(whole[:size])), size


@pytest.mark.parametrize("installed", [True, False])
def test_sound_of_several_blocks_is_read_whole(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talk.voc"
    path.write_bytes(voc(sound(SAMPLES[:6000]), sound(SAMPLES[6000:])))
    if not installed:
        monkeypatch.setattr(ffmpeg, "ffmpeg_path", lambda: None)
        [note] = read(path).notes
        assert note.endswith("read as sound; install ffmpeg to read the whole file")
        return
    if ffmpeg.ffmpeg_path() is None:
        pytest.skip("ffmpeg is not installed")
    recording = read(path)
    assert recording.notes == ()
    np.testing.assert_array_equal(recording.samples, int16_samples(wav_bytes(SAMPLES / np.float32(32768))))
