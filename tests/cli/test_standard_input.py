"""A dash in place of a recording or a text reads standard input, in any supported audio format."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

import pytest
import soundfile

from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.cli import standard_input
from workbench.cli.commands import main
from workbench.cli.standard_input import read_prompt, recording_paths
from workbench.core.errors import BadInput, Unavailable
from workbench.trace.trace import Trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a recording in two formats."""
    folder = tmp_path_factory.mktemp("piped")
    tiny_sensevoice(folder / "sensevoice")
    for name in ("a.wav", "a.flac"):
        soundfile.write(folder / name, noise(2.0)[0], 16_000)
    return folder


@pytest.fixture(autouse=True)
def temp_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("workbench.system.tempdirs.MAX_FOLDER_CHARACTERS", 1000)
    return tmp_path


def pipe_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_audio_on_standard_input_is_transcribed_like_the_file(
    name: str, folder: Path, temp_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe_stdin(monkeypatch, (folder / name).read_bytes())
    assert main(["transcribe", name, "-", "-m", "sensevoice", "--format", "json"]) == 0
    captured = capsys.readouterr()
    file, pipe = (json.loads(line) for line in captured.out.splitlines())
    assert pipe["text"] == file["text"] and pipe["audio_seconds"] == 2.0 and captured.err == ""
    assert list(temp_folder.iterdir()) == [], "no temporary file is left"


@pytest.mark.parametrize(
    ("form", "written"), [("vtt", "WEBVTT\n"), ("srt", ""), ("csv", "model,runtime,start,end,text\n")]
)
def test_live_sound_without_speech_gives_a_valid_file(
    form: str, written: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe_stdin(monkeypatch, bytes(16_001))  # half a sample is at its end
    assert main(["transcribe", "--live", "-", "-m", "sensevoice", "--format", form]) == 0
    assert capsys.readouterr().out == written


def test_trace_command_reads_audio_from_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "t.safetensors"
    pipe_stdin(monkeypatch, (folder / "a.wav").read_bytes())
    assert main(["trace", "-", "-m", "sensevoice", "--out", str(out), "--stages", "tokens"]) == 0
    assert (
        main(["trace", "a.wav", "-m", "sensevoice", "--out", str(tmp_path / "f.safetensors"), "--stages", "tokens"])
        == 0
    )
    assert Trace.load(out).meta["input_digest"] == Trace.load(tmp_path / "f.safetensors").meta["input_digest"]


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (
            b"",
            "-",
            "standard input is empty; expected a recording, as in: cat talk.wav | workbench transcribe - --model M",
        ),
        (
            b"no sound\n",
            "-",
            "- is not a sound file that can be read: it is a text; expected WAV, FLAC, MP3, OGG, M4A or",
        ),
        (b"x", "- -", "- stands for standard input and occurs more than once; expected it once"),
    ],
)
def test_standard_input_without_a_recording_raises_one_line_error(
    content: bytes,
    words: str,
    message: str,
    temp_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipe_stdin(monkeypatch, content)
    assert main(["transcribe", *words.split(), "-m", "sensevoice"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(f"workbench: {message}") and captured.err.count("\n") == 1
    assert list(temp_folder.iterdir()) == []


def test_terminal_or_closed_standard_input_is_refused_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe_stdin(monkeypatch, b"x")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    with pytest.raises(BadInput, match="standard input is a terminal; expected a recording, as in: cat "):
        recording_paths(["-"]).__enter__()
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(BadInput, match="standard input is closed; expected a recording"):
        recording_paths(["-"]).__enter__()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("generate -", "standard input is closed; expected a text, as in: workbench generate - --model M < prompt.txt"),
        ("chat -", "standard input is closed; expected a text, as in: workbench generate - --model M < prompt.txt"),
        ("chat", "there is nothing to answer; expected a text, --audio or --messages"),
    ],
)
def test_closed_standard_input_without_a_text_raises_one_line_error(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main([*words.split(), "-m", "qwen3"]) == 2
    assert capsys.readouterr().err == f"workbench: {message}\n"


def test_standard_input_beyond_the_size_limit_is_refused(temp_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe_stdin(monkeypatch, bytes(100))
    monkeypatch.setattr(standard_input, "MAX_BYTES", 99)
    with pytest.raises(BadInput, match="standard input holds more than "):
        recording_paths(["-"]).__enter__()
    assert list(temp_folder.iterdir()) == []


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    pipe_stdin(monkeypatch, bytes(100))
    with pytest.raises(Unavailable, match="found no room"):
        standard_input._keep(Path("/dev/full"))


def test_standard_input_is_not_read_without_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with recording_paths(["a.wav", "b.wav"]) as paths:
        assert paths == ["a.wav", "b.wav"]


@pytest.mark.parametrize("content", [b"one\ntwo\n", b"\xef\xbb\xbfone\r\ntwo\r\n", b"one\r\ntwo"])
def test_prompt_of_a_file_that_was_made_on_windows_is_the_same(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    # As Python opens standard input on Linux: it translates no line break.
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="\n"))
    assert read_prompt("-") == "one\ntwo"
