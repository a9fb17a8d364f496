"""Damaged and unusual recordings through whole sessions and the command: a transcript or a one-line error."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from tests.support.tiny_checkpoints import noise, tiny_paraformer, tiny_sensevoice
from workbench.cli.commands import main
from workbench.core.errors import BadInput
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.session.values import Transcript

RATE = 16000
SECONDS = 2.0


def wav_header(data_bytes: int, claimed: int | None = None) -> bytes:
    """The header of a 16-bit mono file at 16 kHz; `claimed` replaces the true number of bytes."""
    size = data_bytes if claimed is None else claimed
    form = struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    return b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt " + form + b"data" + struct.pack("<I", size)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one recording in many formats, and with unusable files."""
    folder = tmp_path_factory.mktemp("recordings")
    samples = np.round(noise(SECONDS)[0] * 32768) / 32768  # exact in 16 bits and more
    data = (samples * 32768).astype("<i2").tobytes()

    def write(name: str, values: np.ndarray, subtype: str, rate: int = RATE) -> None:
        soundfile.write(folder / name, values, rate, subtype=subtype, format="WAV")

    write("plain.wav", samples, "PCM_16")
    write("bits24.wav", samples, "PCM_24")
    write("bits32.wav", samples, "PCM_32")
    write("float.wav", samples.astype(np.float32), "FLOAT")
    write("double.wav", samples, "DOUBLE")
    write("five_channels.wav", np.tile(samples[:, None], (1, 5)), "PCM_16")
    write("bits8.wav", samples, "PCM_U8")
    write("telephone.wav", samples[::2], "PCM_16", rate=8000)
    write("studio.wav", np.repeat(samples, 6), "PCM_24", rate=96000)
    write("beyond_full_scale.wav", 50 * samples.astype(np.float32), "FLOAT")
    write("10ms.wav", samples[:160], "PCM_16")
    write("one_sample.wav", samples[:1], "PCM_16")
    write("digital_silence.wav", np.zeros(RATE), "PCM_16")
    (folder / "promises_more.wav").write_bytes(wav_header(len(data), claimed=10 * len(data)) + data)
    (folder / "promises_less.wav").write_bytes(wav_header(len(data), claimed=len(data) // 2) + data)
    (folder / "promises_4GB.wav").write_bytes(wav_header(len(data), claimed=0xFFFFFFFF - 36) + data)

    (folder / "empty.wav").touch()
    (folder / "header_only.wav").write_bytes(wav_header(0))
    (folder / "header_only_promising.wav").write_bytes(wav_header(0, claimed=len(data)))
    (folder / "half_a_header.wav").write_bytes(wav_header(0)[:20])
    (folder / "text.wav").write_text("Dear recording,\nthis is only a letter.\n" * 20)
    invalid = samples.astype(np.float32)
    invalid[1000] = np.nan
    write("nan.wav", invalid, "FLOAT")
    invalid[1000] = np.inf
    write("infinite.wav", invalid, "FLOAT")
    (folder / "folder.wav").mkdir()
    return folder


SAME_SOUND = ["bits24", "bits32", "float", "double", "five_channels", "promises_more", "promises_4GB"]
UNUSUAL = [
    "bits8",
    "telephone",
    "studio",
    "beyond_full_scale",
    "10ms",
    "one_sample",
    "digital_silence",
    "promises_less",
]
UNUSABLE = {
    "empty": "is empty (0 bytes)",
    "header_only": "is the header of a WAV file with no samples after it",
    "header_only_promising": "is the header of a WAV file with no samples after it",
    "half_a_header": "",
    "text": "is not a sound file that",
    "nan": "has 1 sample that is not sound (NaN, infinity, or beyond 1e+12 times full scale), the first at sample",
    "infinite": "has 1 sample that is not sound (NaN, infinity, or beyond 1e+12 times full scale), the first at",
    "folder": "is a directory",
    "missing": "there is no file",
}


@pytest.fixture(scope="module", params=["sensevoice", "paraformer"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSession]:
    write = {"sensevoice": tiny_sensevoice, "paraformer": tiny_paraformer}[request.param]
    with Registry() as registry, registry.open(write(tmp_path_factory.mktemp(request.param))) as session:
        yield session


def content_of(transcript: Transcript) -> tuple[object, ...]:
    return transcript.text, transcript.tokens, transcript.segments, transcript.audio_seconds


@pytest.mark.parametrize("name", SAME_SOUND)
def test_same_sound_in_another_file_format_gives_the_same_transcript(
    session: OpenSession, recordings: Path, name: str
) -> None:
    plain = session.transcribe(recordings / "plain.wav")
    assert plain.text and plain.audio_seconds == SECONDS
    assert content_of(session.transcribe(recordings / f"{name}.wav")) == content_of(plain)


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_recording_gives_a_transcript_and_a_trace(session: OpenSession, recordings: Path, name: str) -> None:
    path = recordings / f"{name}.wav"
    transcript = session.transcribe(path)
    assert transcript.audio_seconds > 0
    assert all(0 <= segment.start <= segment.end <= transcript.audio_seconds for segment in transcript.segments)
    for stage, array in session.trace(path).items():
        assert array.dtype.kind == "U" or np.isfinite(array).all(), stage


@pytest.mark.parametrize("name", ["10ms", "one_sample"])
@pytest.mark.parametrize("vad", ["none", "silero"])
def test_clip_shorter_than_a_window_passes_the_vad(session: OpenSession, recordings: Path, name: str, vad: str) -> None:
    assert session.transcribe(recordings / f"{name}.wav", vad=vad).audio_seconds <= 0.01


@pytest.mark.parametrize("name", ["promises_more", "promises_4GB"])
def test_wrong_length_in_the_header_gives_a_note(session: OpenSession, recordings: Path, name: str) -> None:
    [note] = session.transcribe(recordings / f"{name}.wav").notes
    assert "the 2.0 s" in note


@pytest.mark.parametrize("name", sorted(UNUSABLE))
def test_unusable_recording_raises_one_line_error_and_the_session_stays_usable(
    session: OpenSession, recordings: Path, name: str
) -> None:
    pid = session.pid
    for call in (session.transcribe, session.trace):
        with pytest.raises(BadInput) as error:
            call(recordings / f"{name}.wav")
        text = str(error.value)
        assert f"{name}.wav" in text and UNUSABLE[name] in text and "\n" not in text and "Traceback" not in text
        assert not getattr(error.value, "__notes__", [])
    assert session.transcribe(recordings / "plain.wav").text and session.pid == pid


def test_command_transcribes_good_recordings_and_prints_one_line_per_bad_recording(
    recordings: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = str(tiny_sensevoice(tmp_path / "tiny"))
    usable = ["plain", *SAME_SOUND, *UNUSUAL]
    names = [
        name for pair in zip(usable, [*UNUSABLE, *usable], strict=False) for name in pair
    ]  # good and bad files in turn
    names = list(dict.fromkeys([*names, *UNUSABLE]))
    status = main(["transcribe", *(str(recordings / f"{name}.wav") for name in names), "--model", model])
    output = capfd.readouterr()  # including the output of the session's process
    assert status == 2
    assert len(output.out.splitlines()) == len(usable)
    complaints = [line for line in output.err.splitlines() if line.startswith("workbench: ")]
    notes = [line for line in output.err.splitlines() if line.startswith("promises_")]
    assert len(complaints) == len(UNUSABLE) and len(complaints) + len(notes) == len(output.err.splitlines())
    for name, line in zip([name for name in names if name in UNUSABLE], complaints, strict=True):
        assert f"{name}.wav" in line


@pytest.mark.slow
@pytest.mark.parametrize("session", ["sensevoice"], indirect=True)  # all models have the same voice detection
def test_two_hours_of_silence_are_an_empty_transcript_in_bounded_time_and_memory(
    session: OpenSession, tmp_path: Path
) -> None:
    path, data = tmp_path / "silence.wav", 2 * 3600 * RATE * 2
    with path.open("wb") as file:
        file.write(wav_header(data))
        file.truncate(44 + data)  # a sparse file
    transcript = session.transcribe(path)
    assert (transcript.text, transcript.segments, transcript.tokens) == ("", (), ())
    assert transcript.notes == ("silero-vad found no speech in the recording",)
    assert transcript.audio_seconds == 7200.0
    assert transcript.real_time_factor < 1 / 60, "at most two minutes on a busy machine"
    assert session.pid and transcript.memory_bytes
    assert psutil.Process(session.pid).memory_info().rss <= transcript.memory_bytes < 3 << 30
