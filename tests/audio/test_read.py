"""Reading audio: every format, every kind of damage with its error message; no rescaling and no loss of samples."""

import io
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from tests.support.shared_data import shared
from tests.support.sound_files import RATE, Decoder, needs_ffmpeg, tone, wav_bytes, with_data_size
from workbench.audio import ffmpeg
from workbench.audio.read import Recording, read, samples_to_int16, write_wav
from workbench.core.errors import BadInput


def sentence(source: object) -> str:
    """Returns the message of the `BadInput` that reading must raise."""
    with pytest.raises(BadInput) as caught:
        read(source)  # type: ignore[arg-type]
    text = str(caught.value)
    assert text and "\n" not in text
    if isinstance(source, Path):
        assert source.name[:60] in text  # very long names are cut
        assert str(source.parent) not in text
    return text


# --- formats ---


@pytest.mark.parametrize(
    ("subtype", "tolerance"),
    [
        ("PCM_U8", 2**-7),
        ("PCM_16", 2**-15),
        ("PCM_24", 2**-22),
        ("PCM_32", 1e-7),
        ("FLOAT", 0),
        ("DOUBLE", 0),
        ("ALAW", 2e-2),
    ],
)
def test_wav_of_every_subtype_is_read(tmp_path: Path, subtype: str, tolerance: float) -> None:
    samples = tone(0.5)
    path = tmp_path / "tone.wav"
    soundfile.write(path, samples, RATE, subtype=subtype)
    recording = read(path)
    assert recording.source_format == f"WAV {subtype}"
    assert (recording.source_rate, recording.source_channels, recording.sample_rate) == (RATE, 1, RATE)
    assert recording.samples.dtype == np.float32
    assert recording.notes == ()
    assert np.abs(recording.samples - samples).max() <= tolerance


@pytest.mark.parametrize(
    ("name", "level"), [("tone.flac", 1e-4), ("tone.ogg", 0.05), ("tone.mp3", 0.05), ("tone.aiff", 1e-4)]
)
def test_other_container_formats_are_read(tmp_path: Path, name: str, level: float) -> None:
    samples = tone(2.0)
    path = tmp_path / name
    soundfile.write(path, samples, RATE)
    recording = read(str(path))
    assert recording.notes == ()
    assert abs(recording.seconds - 2.0) < 0.1
    middle = recording.samples[RATE // 2 : RATE]
    assert np.abs(np.abs(middle).max() - 0.5) <= level


def test_reading_in_blocks_equals_reading_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for name in ("noise.wav", "noise.flac", "noise.ogg", "noise.mp3"):
        path = tmp_path / name
        soundfile.write(path, 0.3 * rng.standard_normal((44_100, 2)), 44_100)
        at_once = read(path)
        with monkeypatch.context() as patch:
            patch.setattr("workbench.audio.libsndfile.BLOCK", 2 * 1777)
            pieces = read(path)
        assert len(at_once.samples) == len(pieces.samples)
        np.testing.assert_allclose(pieces.samples, at_once.samples, atol=2e-6)


def test_five_channels_are_averaged(tmp_path: Path) -> None:
    channels = np.stack([tone(0.2, hertz=200.0 * (1 + i)) for i in range(5)], axis=1)
    path = tmp_path / "five.wav"
    soundfile.write(path, channels, RATE, subtype="FLOAT")
    recording = read(path)
    assert recording.source_channels == 5
    np.testing.assert_allclose(recording.samples, channels.mean(axis=1), atol=1e-7)


def test_channels_that_cancel_each_other_are_refused(tmp_path: Path) -> None:
    one = tone(0.2)
    path = tmp_path / "stereo.wav"
    soundfile.write(path, np.stack([one, -one], axis=1), RATE)
    for source, name in ((path, "stereo.wav"), ((np.stack([one, -one], axis=1), 44_100), "the array")):
        with pytest.raises(BadInput, match=rf"^the channels of {name} cancel each other .* keep one of them alone"):
            read(source)
    assert np.abs(read((np.stack([one, -0.5 * one], axis=1), RATE)).samples).max() > 0.01
    assert not read((np.zeros((RATE, 2)), RATE)).samples.any()


def test_equal_channels_average_to_the_channel() -> None:
    samples = tone(0.1)
    np.testing.assert_array_equal(read((np.stack([samples, samples], axis=1), RATE)).samples, samples)


def test_float_wav_beyond_full_scale_is_not_clipped(tmp_path: Path) -> None:
    path = tmp_path / "loud.wav"
    soundfile.write(path, tone(0.1, level=3.0), RATE, subtype="FLOAT")
    assert read(path).samples.max() > 2.9


def test_ten_milliseconds_at_any_rate_give_160_samples(tmp_path: Path) -> None:
    for rate in (8_000, RATE, 44_100):
        path = tmp_path / f"short{rate}.wav"
        soundfile.write(path, tone(0.01, rate), rate)
        assert len(read(path).samples) == 160


def test_array_of_one_sample_is_read() -> None:
    assert read((np.ones(1, dtype=np.float32), RATE)).samples.tolist() == [1.0]


@needs_ffmpeg
def test_files_that_libsndfile_refuses_go_to_ffmpeg(tmp_path: Path) -> None:
    source, target = tmp_path / "tone.wav", tmp_path / "tone.m4a"
    soundfile.write(source, np.stack([tone(2.0, 44_100), tone(2.0, 44_100)], axis=1), 44_100)
    subprocess.run(["ffmpeg", "-v", "error", "-i", source, target], check=True, stdin=subprocess.DEVNULL)
    recording = read(target)
    assert (recording.source_rate, recording.source_channels, recording.source_format) == (44_100, 2, "MOV aac")
    assert abs(recording.seconds - 2.0) < 0.1
    assert np.abs(np.abs(recording.samples[RATE // 2 : RATE]).max() - 0.5) < 0.05


@needs_ffmpeg
def test_decoded_samples_are_retained_when_ffmpeg_stops_early(tmp_path: Path) -> None:
    source, target = tmp_path / "tone.wav", tmp_path / "tone.mka"
    soundfile.write(source, tone(20.0), RATE)
    subprocess.run(["ffmpeg", "-v", "error", "-i", source, "-c:a", "aac", target], check=True, stdin=subprocess.DEVNULL)
    assert read(target).notes == ()
    content = target.read_bytes()
    target.write_bytes(content[: len(content) // 2])
    recording = read(target)
    assert 5.0 < recording.seconds < 15.0
    [note] = recording.notes
    assert note.startswith("the file is cut or damaged (File ended prematurely")


@needs_ffmpeg
@pytest.mark.parametrize(("packet", "mode"), [(188, "0"), (192, "1")])
def test_a_transport_stream_whose_last_packet_is_cut_gets_a_note(tmp_path: Path, packet: int, mode: str) -> None:
    source, target = tmp_path / "tone.wav", tmp_path / "tone.ts"
    soundfile.write(source, tone(2.0), RATE)
    command = ["ffmpeg", "-v", "error", "-i", source, "-c:a", "mp2", "-mpegts_m2ts_mode", mode, target]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    assert read(target).notes == ()
    content = target.read_bytes()
    assert len(content) % packet == 0
    target.write_bytes(content[:-100])
    [note] = read(target).notes
    assert note.startswith("the file is cut or damaged (")


@needs_ffmpeg
def test_playlist_is_refused_and_opens_no_other_file(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "secret.wav", tone(1.0), RATE)
    playlist = tmp_path / "list.m3u8"
    playlist.write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nsecret.wav\n#EXT-X-ENDLIST\n")
    sentence(playlist)
    concat = tmp_path / "list.ffconcat"
    concat.write_text("ffconcat version 1.0\nfile secret.wav\n")
    sentence(concat)


def test_error_message_mentions_missing_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg, "ffmpeg_path", lambda: None)
    path = tmp_path / "video.mp4"
    path.write_bytes(b"\0\0\0\x18ftypmp42" + bytes(100))
    assert "ffmpeg, which reads more formats, is not installed" in sentence(path)


# --- resampling ---


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_resampling_keeps_a_tone(rate: int) -> None:
    recording = read((tone(3.0, rate), rate))
    assert abs(len(recording.samples) - 3 * RATE) <= 1
    inside = slice(RATE // 2, 5 * RATE // 2)  # away from the edges, where a filter has nothing on one side
    np.testing.assert_allclose(recording.samples[inside], tone(3.0)[inside], atol=1e-4)


def test_resampling_removes_frequencies_above_8_khz() -> None:
    assert np.abs(read((tone(3.0, 48_000, hertz=9_000.0), 48_000)).samples[RATE:-RATE]).max() < 1e-4


def test_sound_shorter_than_one_sample_at_16_khz_is_refused() -> None:
    assert "holds 3 samples at 192000 Hz, less than one sample at 16000 Hz" in sentence((np.ones(3), 192_000))
    assert len(read((np.ones(8), 192_000)).samples) == 1


# --- arrays ---


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (np.array([-32768, 0, 16384], dtype=np.int16), [-1.0, 0.0, 0.5]),
        (np.array([-(2**31), 0, 2**30], dtype=np.int32), [-1.0, 0.0, 0.5]),
        (np.array([0, 128, 192], dtype=np.uint8), [-1.0, 0.0, 0.5]),
        (np.array([-128, 0, 64], dtype=np.int8), [-1.0, 0.0, 0.5]),
        (np.array([-1.0, 0.0, 0.5], dtype=np.float64), [-1.0, 0.0, 0.5]),
        (np.array([-1.0, 0.0, 0.5], dtype=np.float16), [-1.0, 0.0, 0.5]),
        ([-1.0, 0.0, 0.5], [-1.0, 0.0, 0.5]),
    ],
)
def test_arrays_are_scaled_by_their_type(samples: object, expected: list[float]) -> None:
    assert read((samples, RATE)).samples.tolist() == expected


def test_the_callers_array_is_not_shared() -> None:
    samples = tone(0.1)
    recording = read((samples, RATE))
    samples[:] = 0
    assert np.abs(recording.samples).max() > 0.4


def test_the_audio_of_a_row_of_datasets_is_a_recording() -> None:
    row = {"path": "a.wav", "array": tone(0.1), "sampling_rate": RATE}
    assert read(row).digest == read((row["array"], RATE)).digest


def test_a_decoder_of_torchcodec_is_a_recording() -> None:
    stereo = np.stack([tone(0.1), tone(0.1) / 2])
    assert read(Decoder(stereo)).digest == read((stereo.T, RATE)).digest
    assert "cannot be decoded: no sound" in sentence(Decoder(RuntimeError("no sound")))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ((np.zeros((2, 16_000)), RATE), "transpose them if the channels come first"),
        ((np.zeros((2, 2, 2)), RATE), "(n, channels)"),
        ((np.zeros((4, 0)), RATE), "(n, channels)"),
        ((RATE, np.zeros(100)), "other order"),
        ((np.zeros(100), 0), "sample rate of 0 Hz"),
        ((np.zeros(100), -16_000), "sample rate of -16000 Hz"),
        ((np.zeros(100), 16_000.5), "whole number"),
        ((np.zeros(100), "16000"), "whole number"),
        ((np.zeros(100), None), "whole number"),
        ((np.zeros(100, dtype=bool), RATE), "not bool"),
        ((np.zeros(100, dtype=np.complex64), RATE), "not complex64"),
        ((np.array(["a"]), RATE), "not str"),
        (([[1.0, 2.0], [3.0]], RATE), "array"),
        ((np.zeros(0), RATE), "no samples"),
        (np.zeros(100), "not ndarray"),
        (None, "not NoneType"),
        ({"array": np.zeros(100)}, "not dict; a mapping needs array and sampling_rate"),
        (io.BytesIO(b"RIFF"), "not BytesIO; give the path of an open file, or what soundfile.read(file) returns"),
        (b"RIFF", "not bytes; soundfile.read(io.BytesIO(content)) returns both"),
        ((torch.zeros(100, requires_grad=True), RATE), "Use tensor.detach().numpy()"),
        ((torch.zeros(100, dtype=torch.bfloat16), RATE), "do not form an array"),
    ],
)
def test_invalid_arrays_raise_an_error(source: object, words: str) -> None:
    assert words in sentence(source)


def test_error_on_non_finite_samples_gives_count_and_first_position(tmp_path: Path) -> None:
    samples = tone(2.0)
    samples[[4_000, 4_001, 30_000]] = [np.nan, np.inf, -np.inf]
    for source in ((samples, RATE), (np.stack([samples, tone(2.0)], axis=1), RATE)):
        text = sentence(source)
        assert "3 samples" in text and "sample 4000, 0.250 s" in text
    assert "1 sample that is" in sentence((np.array([0.0, 1e19], dtype=np.float32), RATE))
    path = tmp_path / "nan.wav"
    soundfile.write(path, samples, RATE, subtype="FLOAT")
    assert "3 samples" in sentence(path)
    assert "1 sample that is" in sentence((np.array([1e300]), RATE))


# --- damage ---


def test_files_and_paths_without_sound_raise_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.wav"
    empty.touch()
    assert "0 bytes" in sentence(empty)

    wav = wav_bytes(tone(1.0))
    header = tmp_path / "header.wav"
    header.write_bytes(wav[:44])
    assert "no samples" in sentence(header)
    header.write_bytes(with_data_size(wav[:44], 0, 36))
    assert "no samples" in sentence(header)
    for cut in (4, 12, 20, 40):
        header.write_bytes(wav[:cut])
        sentence(header)
    for name in ("zero.flac", "zero.ogg", "zero.aiff"):
        soundfile.write(tmp_path / name, np.zeros(0), RATE)
        sentence(tmp_path / name)

    text = tmp_path / "text.wav"
    text.write_text("This is a letter, not a recording.\n" * 20)
    assert "not a sound file" in sentence(text)
    raw = tmp_path / "samples.raw"
    raw.write_bytes(bytes(1000))
    sentence(raw)
    assert "directory" in sentence(tmp_path)
    assert "no file" in sentence(tmp_path / "missing.wav")
    for address in ("https://example.org/a.wav", "file:///home/me/a.wav"):
        for place in (address, str(Path(address).absolute())):
            assert "addresses are not opened: download the file" in sentence(place)
    assert "cannot be opened" in sentence(tmp_path / ("x" * 300))
    sentence(tmp_path / "zero\0byte.wav")
    fifo = tmp_path / "fifo.wav"
    os.mkfifo(fifo)
    assert "a device or a pipe" in sentence(fifo)


def test_wav_chunks_after_the_data_chunk_are_not_read_as_samples(tmp_path: Path) -> None:
    wav = wav_bytes(tone(1.0))
    notes = b"LIST" + struct.pack("<I", 5000) + b"INFO" + b"x" * 4996
    path = tmp_path / "list.wav"
    for content in (wav + notes, (wav + notes)[:-3000], wav + notes + b"id3"):
        path.write_bytes(content)
        recording = read(path)
        assert (recording.seconds, recording.notes) == (1.0, ())
    path.write_bytes(with_data_size(wav[:44], 0) + notes)
    assert "no samples" in sentence(path)


def test_damaged_flac_is_read_up_to_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "cut.flac"
    soundfile.write(path, 0.3 * np.random.default_rng(0).standard_normal(10 * RATE), RATE)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    recording = read(path)
    assert 4.0 < recording.seconds < 6.0
    assert len(recording.notes) == 1 and recording.notes[0].startswith(
        "decoding stopped early (flac decoder lost sync)"
    )


# --- what a recording says of itself ---


def test_digest_identifies_the_samples(tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    write_wav(path, tone(1.0))
    first = read(path)
    assert first.digest == read((samples_to_int16(tone(1.0)), RATE)).digest
    assert first.digest != read((tone(1.0, hertz=441.0), RATE)).digest
    assert len(first.digest) == 16 and int(first.digest, 16) >= 0


def test_real_speech_recordings_are_read() -> None:
    recording = read(shared("speech/funasr_sample.wav"))
    assert isinstance(recording, Recording)
    assert (recording.seconds, recording.source_format) == (6.0, "WAV PCM_16")
    digit = read(shared("fsdd/george/0_george_0.wav"))
    assert (digit.source_rate, digit.sample_rate) == (8_000, RATE)


# --- length ---


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory of a process the Linux way")
@pytest.mark.parametrize(
    ("hours", "rate", "channels", "limit"),
    [(2, 16_000, 1, 800), (0.5, 44_100, 2, 350)],  # megabytes, of which the samples are 461 and 115
)
def test_reading_hours_of_sound_holds_the_samples_in_memory_once(
    tmp_path: Path, hours: float, rate: int, channels: int, limit: int
) -> None:
    path = tmp_path / "long.wav"
    frames = round(hours * 3600) * rate
    size = frames * channels * 2
    with path.open("wb") as file:  # a sparse file: hours of silence without the disk space
        file.write(b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt ")
        file.write(struct.pack("<IHHIIHH", 16, 1, channels, rate, rate * channels * 2, channels * 2, 16))
        file.write(b"data" + struct.pack("<I", size))
        file.truncate(44 + size)
    script = (
        "import sys; from workbench.audio.read import read; from workbench.system.memory import peak_resident_bytes;"
        "print(len(read(sys.argv[1]).samples), peak_resident_bytes() >> 20)"
    )
    root = Path(__file__).resolve().parents[2]
    process = subprocess.run([sys.executable, "-c", script, path], cwd=root, capture_output=True, text=True, check=True)
    samples, peak_megabytes = map(int, process.stdout.split())
    assert samples == hours * 3600 * RATE
    assert peak_megabytes < limit
