"""Files without a recording or with damage: each raises a one-line error at once and prints nothing on stderr."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import struct
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sound_files import needs_ffmpeg
from workbench.audio import ffmpeg
from workbench.audio.muted import muted_stderr
from workbench.audio.read import read
from workbench.audio.refused import EXPECTED, reason_of
from workbench.audio.track import open_track
from workbench.core.errors import BadInput
from workbench.formats.other_files import other_kind

TONE = (0.3 * np.sin(np.arange(8000) * 0.1)).astype(np.float32)
NOISE = np.random.default_rng(0).bytes(20_000)
FOREIGN = ("libsndfile", "ffmpeg", "possibly a pipe", "Invalid", "Error", "Internal", "malformed", "moov", "traceback")
AT_ONCE = 20.0  # seconds, on a busy machine; opening a pipe without a writer would block forever


def encode(container: str, samples: np.ndarray = TONE, subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format=container, subtype=subtype)
    return file.getvalue()


def wav(at: int, form: str, value: int) -> bytes:
    """Returns a WAV file with another number in its header."""
    changed = bytearray(encode("WAV"))
    struct.pack_into(form, changed, at, value)
    return bytes(changed)


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("x.wav", encode("WAV"))
    return file.getvalue()


NOTHING = "nothing in it is known as sound"
DAMAGED = "is damaged or incomplete"
CONTENT: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty.wav": (lambda: b"", "is empty (0 bytes)"),
    "text.wav": (lambda: b"Dear recording,\nthis is a letter.\n" * 20, "it is a text"),
    "long_text.wav": (lambda: "Grüße, 你好. ".encode() * 2000, "it is a text"),
    "wide_text.wav": (lambda: "hello there".encode("utf-16") * 40, "it is a text"),
    "page.mp3": (lambda: b"<!DOCTYPE html><html><body>404</body></html>", "it is a text"),
    "list.m3u": (lambda: b"#EXTM3U\n/etc/passwd\n", "it is a text"),
    "random.mp3": (lambda: NOISE, NOTHING),
    "random.wav": (lambda: NOISE, NOTHING),
    "random.flac": (lambda: NOISE, NOTHING),
    "random.m4a": (lambda: NOISE, NOTHING),
    "random.raw": (lambda: NOISE, NOTHING),
    "random": (lambda: NOISE, NOTHING),
    "zeros.mp3": (lambda: bytes(20_000), NOTHING),
    "tag_alone.mp3": (lambda: b"ID3\x03\0\0\0\0\x0f\x76" + bytes(3000), f"like an MP3 file, but {DAMAGED}"),
    "half.ogg": (lambda: encode("OGG")[:2000], f"like an OGG file, but {DAMAGED}"),
    "twenty_bytes.flac": (lambda: encode("FLAC")[:20], f"like a FLAC file, but {DAMAGED}"),
    "middle.flac": (lambda: encode("FLAC")[:200] + NOISE[:4000], f"like a FLAC file, but {DAMAGED}"),
    "twenty_bytes.aiff": (lambda: encode("AIFF")[:20], f"like an AIFF file, but {DAMAGED}"),
    "head.mp4": (lambda: b"\0\0\0\x18ftypmp42" + bytes(100), f"like an MP4 or M4A file, but {DAMAGED}"),
    "head.mka": (lambda: b"\x1aE\xdf\xa3" + NOISE[:300], f"like a Matroska or WebM file, but {DAMAGED}"),
    "half_a_header.wav": (lambda: encode("WAV")[:20], f"like a WAV file, but {DAMAGED}"),
    "header.wav": (lambda: encode("WAV")[:44], "is the header of a WAV file with no samples after it"),
    "no_end_of_chunks.wav": (lambda: b"RIFF\xff\xff\xff\xffWAVE" + b"LIST\0\0\0\0" * 5000, DAMAGED),
    "no_channels.wav": (lambda: wav(22, "<H", 0), "its WAV header states 0 channels"),
    "too_many_channels.wav": (lambda: wav(22, "<H", 65535), "its WAV header states 65535 channels"),
    "0_hertz.wav": (lambda: wav(24, "<I", 0), "its WAV header states a sample rate of 0 Hz"),
    "4_gigahertz.wav": (lambda: wav(24, "<I", 0xFFFFFFFF), "its WAV header states a sample rate of 4294967295 Hz"),
    "no_bits.wav": (lambda: wav(34, "<H", 0), "its WAV header states 0 bits a sample"),
    "coding.wav": (lambda: wav(20, "<H", 0x1234), "its WAV header states a coding (number 0x1234) that is not known"),
    "nan.wav": (lambda: encode("WAV", np.where(TONE[9] == TONE, np.nan, TONE), "FLOAT"), "not sound (NaN, infinity,"),
    "infinite.wav": (
        lambda: encode("WAV", np.where(TONE[9] == TONE, np.inf, TONE), "FLOAT"),
        "not sound (NaN, infinity,",
    ),
    "zip.wav": (archive, "it is a ZIP archive"),
    "gzip.wav": (lambda: gzip.compress(encode("WAV")), "it is a gzip archive"),
    "tar.wav": (lambda: b"x.wav" + bytes(252) + b"ustar" + bytes(300), "it is a tar archive"),
    "paper.wav": (lambda: b"%PDF-1.7\n" + NOISE, "it is a PDF document"),
    "picture.wav": (lambda: b"\x89PNG\r\n\x1a\n" + NOISE, "it is a picture (PNG)"),
    "photograph.mp3": (lambda: b"\xff\xd8\xff\xe0" + NOISE, "it is a picture (JPEG)"),
    "program.wav": (lambda: b"\x7fELF" + NOISE, "it is a program"),
    "notes.mid": (
        lambda: b"MThd\0\0\0\6\0\1\0\1\0\x60" + bytes(30),
        "it is a MIDI file, which holds notes and no sound",
    ),
    "model.wav": (lambda: b"GGUF" + bytes(100), "it is a model (GGUF)"),
}
PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder.wav": (lambda path: path.mkdir(), "is a directory"),
    "pipe.wav": (os.mkfifo, "is a device or a pipe"),
    "zero.wav": (lambda path: path.symlink_to("/dev/zero"), "is a device or a pipe"),
    "nowhere.wav": (lambda path: path.symlink_to("/nowhere"), "there is no file"),
    "itself.wav": (lambda path: path.symlink_to(path.name), "cannot be opened: Too many levels of symbolic links"),
    "missing.wav": (lambda path: None, "there is no file"),
    "a\0b.wav": (lambda path: None, "there is no file"),
    "x" * 5000: (lambda path: None, "cannot be opened: File name too long"),
}


def error_of(path: Path) -> str:
    started = time.perf_counter()
    with pytest.raises(BadInput) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 300 and time.perf_counter() - started < AT_ONCE
    assert not [word for word in FOREIGN if word in message], "words of a library"
    return message


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="without ffmpeg, the sentence says how to get it")
@pytest.mark.parametrize("name", CONTENT)
def test_file_without_a_recording_raises_one_line_error_with_the_file_name(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make, expected = CONTENT[name]
    (tmp_path / name).write_bytes(make())
    message = error_of(tmp_path / name)
    assert message.startswith(f"{name} ") and expected in message
    if "is not a sound file that can be read: " in message:
        assert message.endswith(EXPECTED)
    assert capfd.readouterr() == ("", ""), "a library wrote to the terminal"


@pytest.mark.parametrize("name", PLACES, ids=lambda name: name[:20].replace("\0", "0"))
def test_paths_that_are_not_files_raise_an_error_without_blocking(name: str, tmp_path: Path) -> None:
    make, expected = PLACES[name]
    make(tmp_path / name)
    assert expected in error_of(tmp_path / name)


def test_recording_with_200_channels_and_partly_damaged_mp3_are_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "200.wav").write_bytes(encode("WAV", np.tile(TONE[:, None], (1, 200))))
    assert read(tmp_path / "200.wav").source_channels == 200
    content = encode("MP3", np.tile(TONE, 8))
    damaged = content[: len(content) // 3] + NOISE[:2000] + content[len(content) // 3 + 2000 :]
    (tmp_path / "hurt.mp3").write_bytes(damaged)
    assert read(tmp_path / "hurt.mp3").seconds > 1
    assert capfd.readouterr() == ("", ""), "mpg123 tells of each frame that it does not like"


def test_error_message_recommends_ffmpeg_when_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg, "ffmpeg_path", lambda: None)
    (tmp_path / "random.m4a").write_bytes(NOISE)
    with pytest.raises(BadInput, match=r"sound file \(ffmpeg, which reads more formats, is not installed\)$"):
        read(tmp_path / "random.m4a")


def test_stderr_is_restored_after_muting(capfd: pytest.CaptureFixture[str]) -> None:
    with muted_stderr(), muted_stderr():
        os.write(2, b"inside\n")
    with muted_stderr(False):
        os.write(2, b"not muted\n")
    os.write(2, b"outside\n")
    assert capfd.readouterr().err == "not muted\noutside\n"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([b"", b"RIFF", b"RIFF\0\0\0\0WAVEfmt ", b"\xff\xfe", b"OggS", b"\0\0\0\x18ftyp"]), st.binary())
def test_arbitrary_bytes_give_a_one_line_reason(first: bytes, rest: bytes) -> None:
    assert reason_of(first + rest) and "\n" not in reason_of(first + rest)
    assert other_kind(b"RIFF" + first + rest) in (None, "a tar archive"), "no decoder would be asked"


@pytest.mark.parametrize(
    "report, words",
    [
        (b"", "it printed no reason"),
        (b"\nConversion failed!\n", "it printed no reason"),
        (b"[mov,mp4 @ 0x55d] moov atom not found.\nx.mp4: Invalid data found\nx.mp4 has ended\n", "Invalid data found"),
        (b"[mov,mp4 @ 0x55d] moov atom not found.\nIt ends here\n", "moov atom not found"),
        (b"first\nlast.\n", "last"),
    ],
)
def test_last_fault_line_of_an_ffmpeg_report_is_the_reason(report: bytes, words: str) -> None:
    assert words in ffmpeg._last_words(io.BytesIO(report))
    assert "0x55d" not in ffmpeg._last_words(io.BytesIO(report))


@pytest.mark.parametrize("ending", [".au", ".snd", ".vox", ".gsm"])
def test_text_with_the_ending_of_a_headerless_recording_is_refused(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"talk{ending}"
    path.write_text("this is a text and no sound\n" * 500)
    with pytest.raises(BadInput, match="it is a text"):
        read(path)


@needs_ffmpeg
def test_film_with_the_ending_of_a_headerless_recording_is_decoded_as_a_film(tmp_path: Path) -> None:
    path = tmp_path / "talk.au"
    command = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "sine=d=1", "-c:a", "aac", "-f", "mp4", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    recording = read(path)
    assert recording.source_format == "MOV aac" and 1.0 <= recording.seconds < 1.1


def test_headerless_recording_gets_a_note(tmp_path: Path) -> None:
    path = tmp_path / "talk.vox"
    path.write_bytes(np.random.default_rng(0).bytes(8000))
    assert read(path).notes == ("it has no header; by the ending of its name, it was read as VOX_ADPCM at 8000 Hz",)
    track = open_track(path)
    assert (track.rate, track.frames) == (8000, 16_000)
    track.close()
