"""MP3 files that state no length, a wrong one, or the correct one."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.sound_files import RATE, needs_ffmpeg, tone, with_data_size
from workbench.audio import ffmpeg
from workbench.audio.libsndfile import whole_of
from workbench.audio.read import opened_stream, read, samples_to_int16
from workbench.audio.track import open_track
from workbench.core.errors import BadInput

LENGTH_FRAMES = (b"Xing", b"Info")
QUIET_THEN_LOUD = np.concatenate([tone(20.0, level=1e-4), np.random.default_rng(0).normal(0, 0.2, 10 * RATE)])


def mp3(mode: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, QUIET_THEN_LOUD, RATE, format="MP3", bitrate_mode=mode)
    return file.getvalue()


def without_length_frame(content: bytes) -> bytes:
    """The same MP3 without its first frame, which states the length."""
    assert any(name in content[:200] for name in LENGTH_FRAMES)
    return content[content.index(content[:2], 200) :]


def in_wav(mpeg: bytes) -> bytes:
    """A WAV file with MP3 as its coding."""
    form = struct.pack("<HHIIHHHHIHHH", 0x55, 1, RATE, 8000, 1, 0, 12, 1, 2, 288, 1, 1105)
    chunks = (
        (b"fmt ", form),
        (b"fact", struct.pack("<I", len(QUIET_THEN_LOUD))),
        (b"data", mpeg + bytes(len(mpeg) % 2)),
    )
    body = b"WAVE" + b"".join(name + struct.pack("<I", len(content)) + content for name, content in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def ape_tag(content: bytes) -> bytes:
    """A tag as players write it behind the sound."""
    ends = (b"APETAGEX" + struct.pack("<4I8x", 2000, 32 + len(content), 1, flags) for flags in (0xA0000000, 0x80000000))
    return content.join(ends)


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
@pytest.mark.parametrize("tail", [b"", b"TAG".ljust(128, b" "), ape_tag(b"picture" * 20_000)])
def test_mp3_without_a_stated_length_is_read_to_its_end(mode: str, tail: bytes, tmp_path: Path) -> None:
    path = tmp_path / "stream.mp3"
    path.write_bytes(without_length_frame(mp3(mode)) + tail)
    recording = read(path)
    assert 30.0 <= recording.seconds < 30.2 and recording.notes == ()
    with path.open("rb") as file:
        sound = opened_stream(file)
        assert sound is not None
        assert len(whole_of(sound)) == len(recording.samples)


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
def test_mp3_with_a_stated_length_has_exactly_that_length(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.mp3"
    path.write_bytes(mp3(mode))
    assert (read(path).seconds, read(path).notes) == (30.0, ())
    with path.open("rb") as file:
        sound = opened_stream(file)
        assert sound is not None and sound.frames == 30 * RATE
        assert len(whole_of(sound)) == 30 * RATE


@pytest.mark.parametrize("name", ["talk.mp3", "talk.wav"])
def test_mpeg_audio_is_the_same_in_blocks_and_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(in_wav(mp3("CONSTANT")) if path.suffix == ".wav" else mp3("VARIABLE"))
    at_once = read(path)
    monkeypatch.setattr("workbench.audio.libsndfile.BLOCK", 5000)
    assert read(path).digest == at_once.digest
    track = open_track(path)
    assert np.array_equal(track.read(25 * RATE, 100), samples_to_int16(at_once.samples[25 * RATE :][:100]))
    track.close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("promised", [None, 0xFFFFFFFF])
def test_mp3_in_wav_is_read_to_its_end(promised: int | None, tmp_path: Path) -> None:
    path = tmp_path / "stream.wav"
    content = in_wav(without_length_frame(mp3("CONSTANT")))
    path.write_bytes(content + b"LIST\4\0\0\0INFO" if promised is None else with_data_size(content, promised))
    recording = read(path)
    assert 30.0 <= recording.seconds < 30.2
    notes = () if promised is None else ("the header states no length; all that the file holds was read",)
    assert recording.notes == notes
    with path.open("rb") as file:
        sound = opened_stream(file)
        assert sound is not None and len(whole_of(sound)) == len(recording.samples)


def test_mp3_of_a_high_bitrate_without_a_stated_length_gets_no_note(tmp_path: Path) -> None:
    path = tmp_path / "stream.mp3"
    file = io.BytesIO()
    soundfile.write(file, tone(2.0, 32_000), 32_000, format="MP3", bitrate_mode="CONSTANT", compression_level=0)
    path.write_bytes(without_length_frame(file.getvalue()))
    recording = read(path)
    assert 2.0 <= recording.seconds < 2.2 and recording.notes == ()


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
@pytest.mark.parametrize("tag", [b"", b"ID3\x04\0\0\0\0\x02\x05" + bytes(261)])
def test_joined_mp3_files_are_read_to_their_end(mode: str, tag: bytes, tmp_path: Path) -> None:
    path = tmp_path / "joined.mp3"
    path.write_bytes(2 * (tag + mp3(mode)))
    recording = read(path)
    assert 60.0 <= recording.seconds < 60.4 and recording.notes == ()
    assert np.abs(recording.samples[:RATE]).max() < 1e-2 < np.abs(recording.samples[-5 * RATE :]).max()
    with path.open("rb") as file:
        sound = opened_stream(file)
        assert sound is not None and len(whole_of(sound)) == len(recording.samples)


@pytest.mark.parametrize("tail", [b"TAG".ljust(128, b" "), ape_tag(b"\xff\xf3" * 20_000), bytes(5000)])
def test_tags_behind_an_mp3_do_not_change_its_length(tail: bytes, tmp_path: Path) -> None:
    path = tmp_path / "talk.mp3"
    path.write_bytes(mp3("VARIABLE") + tail)
    assert (read(path).seconds, read(path).notes) == (30.0, ())


def test_cut_mp3_with_a_stated_length_gets_a_note(tmp_path: Path) -> None:
    path = tmp_path / "cut.mp3"
    content = mp3("VARIABLE")
    path.write_bytes(content[: len(content) // 2])
    recording = read(path)
    assert recording.notes[0].startswith(f"the header promises 30.0 s but the file holds {recording.seconds:.1f} s; ")


def test_damaged_mp3_without_a_stated_length_is_read_up_to_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "damaged.mp3"
    path.write_bytes(without_length_frame(mp3("CONSTANT")) + bytes(4096))
    recording = read(path)
    assert 29.9 < recording.seconds < 30.2
    assert recording.notes[0].startswith("decoding stopped early (")


def of_other_form(rate: int, channels: int) -> bytes:
    """An MP3 of one second."""
    file = io.BytesIO()
    soundfile.write(file, np.stack([tone(1.0, rate)] * channels, axis=1), rate, format="MP3")
    return file.getvalue()


@needs_ffmpeg
@pytest.mark.parametrize("other", [(RATE, 2), (44_100, 1)])
@pytest.mark.parametrize("change", [lambda content: content, without_length_frame])
def test_mp3_that_changes_its_form_is_read_to_its_end(
    other: tuple[int, int], change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "joined.mp3"
    path.write_bytes(change(mp3("VARIABLE")) + of_other_form(*other))
    assert 31.0 <= read(path).seconds < 31.4
    with path.open("rb") as file:
        assert opened_stream(file) is None


def test_without_ffmpeg_a_note_says_that_the_form_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg, "ffmpeg_path", lambda: None)
    path = tmp_path / "joined.mp3"
    path.write_bytes(mp3("VARIABLE") + of_other_form(44_100, 1))
    assert read(path).notes == (
        "its sample rate or number of channels changes, and the part before the change was read; install ffmpeg to "
        "read the whole file",
    )


@needs_ffmpeg
def test_mp3_that_begins_within_a_frame_is_read(tmp_path: Path) -> None:
    path = tmp_path / "part.mp3"
    content = mp3("CONSTANT")
    path.write_bytes(content[len(content) // 2 + 1 :])
    assert 5.0 < read(path).seconds < 25.0


def test_other_file_named_mp3_is_refused_in_plain_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder searches a file of that name for frames, and finds some."""
    monkeypatch.setattr(ffmpeg, "ffmpeg_path", lambda: None)
    path = tmp_path / "film.mp3"
    path.write_bytes(b"\0\0\0\x18ftypisom" + bytes(600) + without_length_frame(mp3("CONSTANT")))
    with pytest.raises(BadInput, match="it begins like an MP4 or M4A file"):
        read(path)
