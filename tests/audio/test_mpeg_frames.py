"""The search for frames of MPEG audio: whatever lies between them, and wherever a piece of the file ends."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
import soundfile

from tests.support.sound_files import tone
from workbench.audio import mpeg_frames
from workbench.audio.mpeg_frames import changes_form

JUNK = np.random.default_rng(0).bytes(3000)


def mp3(rate: int, channels: int = 1) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.stack([tone(0.5, rate)] * channels, axis=1), rate, format="MP3")
    return file.getvalue()


@pytest.mark.parametrize("window", [5, 1000, 1 << 20])
@pytest.mark.parametrize(
    ("parts", "changes"),
    [
        ([mp3(16_000)], False),
        ([JUNK, mp3(16_000), JUNK, mp3(16_000), JUNK], False),
        ([mp3(16_000), JUNK, mp3(16_000, 2)], True),
        ([JUNK, mp3(16_000), mp3(48_000)], True),
        ([mp3(16_000), mp3(48_000)[:1000]], False),  # a frame or two may be chance
        ([JUNK], False),
        ([], False),
    ],
)
def test_a_change_of_the_form_is_found(
    window: int, parts: list[bytes], changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpeg_frames, "_WINDOW", window)
    file = io.BytesIO(b"".join(parts))
    assert changes_form(file) is changes and file.tell() == 0


@pytest.mark.parametrize("filling", [b"\xff", b"\xff\xfb\x9c", b"\xff\xf3\x14", b"\0"])
def test_a_file_full_of_false_beginnings_is_searched_at_once(filling: bytes) -> None:
    started = time.perf_counter()
    assert not changes_form(io.BytesIO(filling * (3_000_000 // len(filling))))
    assert time.perf_counter() - started < 5
