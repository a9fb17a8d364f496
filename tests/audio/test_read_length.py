"""Reading sound files whose headers are wrong about their length, or state none."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.sound_files import RATE, int16_samples, tone, wav_bytes, with_data_size, without_length
from workbench.audio.read import opened_stream, read
from workbench.audio.wav_header import RepairedWav, wav_layout
from workbench.core.errors import BadInput


def test_wav_header_with_too_long_a_length_adds_a_note(tmp_path: Path) -> None:
    samples = tone(3.2)
    path = tmp_path / "cut.wav"
    path.write_bytes(wav_bytes(tone(10.0))[: 44 + 2 * len(samples)])
    recording = read(path)
    assert recording.notes == ("the header promises 10.0 s but the file holds 3.2 s; the 3.2 s were read",)
    np.testing.assert_array_equal(recording.samples, int16_samples(wav_bytes(samples)))


@pytest.mark.parametrize("riff", [None, 36 + 2000, 0, 0xFFFFFFFF])
def test_wav_header_with_too_short_a_length_reads_all_samples_with_a_note(tmp_path: Path, riff: int | None) -> None:
    wav = wav_bytes(tone(3.2))
    path = tmp_path / "short.wav"
    path.write_bytes(with_data_size(wav, 32_000, riff))
    recording = read(path)
    assert recording.notes == ("the header promises 1.0 s but the file holds 3.2 s; the 3.2 s were read",)
    np.testing.assert_array_equal(recording.samples, int16_samples(wav))


def test_a_difference_of_milliseconds_is_visible_in_the_note(tmp_path: Path) -> None:
    path = tmp_path / "rubbish_behind.wav"
    path.write_bytes(wav_bytes(tone(3.2)) + b"\xaa" * 700)
    assert read(path).notes == ("the header promises 3.200 s but the file holds 3.222 s; the 3.222 s were read",)


@pytest.mark.parametrize("tail", [b"", b"\x01"])
def test_repaired_wav_equals_a_file_with_correct_sizes(tmp_path: Path, tail: bytes) -> None:
    wav = wav_bytes(tone(0.2))
    path = tmp_path / "stream.wav"
    path.write_bytes(with_data_size(wav, 0xFFFFFFFF, 0xFFFFFFFF) + tail)
    with path.open("rb") as file:
        layout = wav_layout(file)
    assert layout is not None and not layout.honest
    with RepairedWav(path, layout) as repaired:
        assert repaired.read() == wav


@pytest.mark.parametrize(
    ("size", "note"),
    [
        (0, "the header states no length; the 3.2 s that the file holds were read"),
        ((1 << 64) - 1, "the header states no length; the 3.2 s that the file holds were read"),
        (32_000, "the header promises 1.0 s but the file holds 3.2 s; the 3.2 s were read"),
        (320_000, "the header promises 10.0 s but the file holds 3.2 s; the 3.2 s were read"),
    ],
)
def test_rf64_with_a_wrong_length_is_read_with_a_note(size: int, note: str, tmp_path: Path) -> None:
    """Such a file comes from a recorder that crashed, or from a pipe."""
    path = tmp_path / "long.wav"
    soundfile.write(path, tone(3.2), RATE, format="RF64", subtype="PCM_16")
    expected, content = read(path), bytearray(path.read_bytes())
    assert expected.notes == ()
    struct.pack_into("<QQ", content, content.index(b"ds64") + 8, size, size)
    path.write_bytes(content)
    recording = read(path)
    assert (recording.digest, recording.notes) == (expected.digest, (note,))


def test_a_length_that_is_wrong_by_a_byte_gets_no_note(tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(with_data_size(wav_bytes(tone(1.0)), 32_001))
    assert (read(path).seconds, read(path).notes) == (1.0, ())


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF, 0xFFFFFFFF - 36])
@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT"])
def test_wav_stream_header_without_a_length_reads_all_samples_with_a_note(
    tmp_path: Path, size: int, subtype: str
) -> None:
    wav = wav_bytes(tone(3.2), subtype=subtype)
    path = tmp_path / "stream.wav"
    path.write_bytes(wav)
    expected = read(path)
    path.write_bytes(with_data_size(wav, size, size) + b"\x01" * (1 if subtype == "PCM_16" else 0))
    recording = read(path)
    assert recording.notes == ("the header states no length; the 3.2 s that the file holds were read",)
    np.testing.assert_array_equal(recording.samples[: len(expected.samples)], expected.samples)
    assert len(recording.samples) - len(expected.samples) <= 20  # chunks that stood behind the sound, if any


@pytest.mark.parametrize("samples", [500, 20 * RATE + 77])
def test_flac_without_a_stated_length_is_read_to_its_end(tmp_path: Path, samples: int) -> None:
    path = tmp_path / "piped.flac"
    soundfile.write(path, 0.3 * np.random.default_rng(0).standard_normal(samples), RATE)
    expected = read(path)
    recording = read(without_length(path))
    assert (recording.digest, recording.notes) == (expected.digest, ())


def test_caf_with_an_impossible_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "damaged.caf"
    soundfile.write(path, tone(0.2), RATE, format="CAF", subtype="FLOAT")
    content = bytearray(path.read_bytes())
    struct.pack_into(">q", content, 56, (1 << 63) - 1)  # of the chunk before the sound
    path.write_bytes(content)
    with pytest.raises(BadInput, match="it begins like a CAF file, but is damaged"):
        read(path)


@pytest.mark.parametrize(
    ("container", "mark", "size"), [("CAF", b"data", bytes(8 * [0xFF])), ("AU", bytes([0, 0, 0, 24]), bytes(4))]
)
def test_file_that_leaves_its_size_open_is_read_to_its_end(
    container: str, mark: bytes, size: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "piped"
    soundfile.write(path, tone(3.2), RATE, format=container, subtype="PCM_16", endian="BIG")
    expected, content = read(path), path.read_bytes()
    at = content.index(mark) + 4
    path.write_bytes(content[:at] + size + content[at + len(size) :])
    recording = read(path)
    assert (recording.digest, recording.notes) == (expected.digest, ())
    with path.open("rb") as file:
        sound = opened_stream(file)
        assert sound is not None and sound.frames == len(recording.samples)


@pytest.mark.parametrize("tag", [b"TAG".ljust(128, b" "), b"APETAGEX" + bytes(300)])
def test_flac_with_a_tag_behind_it_is_read_to_its_end(tag: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tagged.flac"
    soundfile.write(path, tone(3.2), RATE)
    expected = read(path)
    path.write_bytes(path.read_bytes() + tag)
    assert (read(path).digest, read(path).notes) == (expected.digest, ())


@pytest.mark.parametrize("at", [0.1, 0.5, 0.8])
def test_flac_damaged_in_the_middle_is_read_up_to_the_damage(tmp_path: Path, at: float) -> None:
    path = tmp_path / "damaged.flac"
    soundfile.write(path, 0.3 * np.random.default_rng(0).standard_normal(30 * RATE), RATE)
    content = bytearray(path.read_bytes())
    place = int(at * len(content))
    content[place : place + 50] = b"\xff" * 50
    path.write_bytes(content)
    recording = read(path)
    assert 30 * at - 0.5 < recording.seconds < 30 * at + 0.5
    assert recording.notes[0].endswith(f": of 30.0 s, {recording.seconds:.1f} s were read")


def test_a_recording_longer_than_a_server_takes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(wav_bytes(tone(3.0)))
    monkeypatch.setenv("WORKBENCH_AUDIO_MINUTES", "0.05")
    assert read(path).seconds == 3.0
    path.write_bytes(wav_bytes(tone(3.1)))
    with pytest.raises(BadInput, match=r"^talk\.wav is longer than 0\.05 minutes, .* cut it into parts$"):
        read(path)
    monkeypatch.setenv("WORKBENCH_AUDIO_MINUTES", "")  # no limit
    assert read(path).seconds == 3.1
    monkeypatch.setenv("WORKBENCH_AUDIO_MINUTES", "many")
    with pytest.raises(BadInput, match=r"^WORKBENCH_AUDIO_MINUTES is 'many'; expected a number of minutes$"):
        read(path)
