"""workbench chat: one answer as text, audio and JSON, whole conversations, a chat in a terminal, and bad input."""

from __future__ import annotations

import base64
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.fake_conversations import fake_conversation
from tests.support.processes import PATIENCE
from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.cli.commands import main
from workbench.isolation import serial
from workbench.session.conversation import Answer

CHILD = ("-P", "-m", "tests.support.conversing_worker")
SIGNALLED = """
import signal, threading
def send():
    open({place!r}, "rb").read()
    signal.pthread_kill(threading.get_ident(), signal.{number})
threading.Thread(target=send, daemon=True).start()
"""
SPEAK = ["--modalities", "text_audio", "--seed", "3"]
pytestmark = pytest.mark.usefixtures("lasting_sessions")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Models whose answers a made-up network gives, and a recording."""
    folder = tmp_path_factory.mktemp("chat")
    for name in ("fake-audio", "slow"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text('{"model_type": "bagpiper"}')
    soundfile.write(folder / "question.wav", noise(1.0)[0], 16000, subtype="FLOAT")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serial, "CHILD", CHILD)
        patch.chdir(folder)
        yield folder


@pytest.fixture(autouse=True)
def chatting(folder: Path) -> None:
    """Every test has the models."""


def expected(messages: object, **options: object) -> Answer:
    """The answer of the same network in this process."""
    options = {"modalities": "text_audio", "seed": 3, **options}
    return fake_conversation().converse(messages, **options)  # type: ignore[arg-type]


def test_answer_text_goes_to_stdout_and_audio_to_the_out_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "say three", "-m", "fake-audio", *SPEAK, "--out", "answer.wav"]) == 0
    captured, answer = capsys.readouterr(), expected("say three")
    assert captured.out == answer.text + "\n" and answer.audio is not None
    samples, rate = soundfile.read("answer.wav", dtype="float32")
    assert rate == 16000
    np.testing.assert_allclose(samples, np.clip(answer.audio, -1, 1), atol=1e-4)
    assert "--out" not in captured.err
    assert f"fake-audio: answer.wav holds {answer.audio_seconds:.1f} s of audio" in captured.err


def test_missing_out_option_prints_a_hint_about_the_audio(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "say three", "-m", "fake-audio", *SPEAK]) == 0
    seconds = expected("say three").audio_seconds
    [line] = [line for line in capsys.readouterr().err.splitlines() if "audio" in line and "limit" not in line]
    assert line == f"fake-audio: the answer has {seconds:.1f} s of audio; --out FILE.wav writes it"
    assert main(["chat", "say three", "-m", "fake-audio", "--modalities", "text", "--out", "none.wav"]) == 0
    assert "fake-audio: the answer has no audio, so none.wav was not written" in capsys.readouterr().err
    assert not Path("none.wav").exists()


def test_json_has_the_fields_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "say three", "--audio", "question.wav", "-m", "fake-audio", *SPEAK, "--json"]) == 0
    parts = [{"type": "audio", "audio": "question.wav"}, {"type": "text", "text": "say three"}]
    fields, answer = json.loads(capsys.readouterr().out), expected([{"role": "user", "content": parts}])
    assert fields["text"] == answer.text and tuple(fields["token_ids"]) == answer.token_ids
    assert fields["finish"] == answer.finish and fields["prompt_rows"] == answer.prompt_rows
    samples, _ = soundfile.read(io.BytesIO(base64.b64decode(fields["audio"])), dtype="float32")
    assert answer.audio is not None and len(samples) == len(answer.audio)


def test_conversation_is_read_from_a_messages_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.wav").write_bytes(Path("question.wav").read_bytes())
    earlier = [
        {"role": "user", "content": [{"type": "audio", "audio": "q.wav"}]},
        expected("x", modalities="text").message(),
    ]
    question = {"role": "user", "content": "and now?"}
    conversation = [{"role": "system", "content": "brief"}, *earlier, question]
    (tmp_path / "some.json").write_text(json.dumps(earlier), encoding="utf-8-sig")  # as editors of Windows write it
    (tmp_path / "all.json").write_text(json.dumps({"messages": conversation}))
    words = ["-m", "fake-audio", "--modalities", "text", "--json"]
    assert main(["chat", "and now?", "--system", "brief", "--messages", str(tmp_path / "some.json"), *words]) == 0
    assert main(["chat", "--messages", str(tmp_path / "all.json"), *words]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["token_ids"] == second["token_ids"] and first["prompt_rows"] == second["prompt_rows"] > 20


def test_dash_reads_text_or_audio_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-m", "fake-audio", "--modalities", "text", "--seed", "3"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"say three\n")))
    assert main(["chat", "-", *words]) == 0
    assert capsys.readouterr().out == expected("say three", modalities="text").text + "\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path("question.wav").read_bytes())))
    assert main(["chat", "--audio", "-", *words]) == 0
    messages = [{"role": "user", "content": [{"type": "audio", "audio": "question.wav"}]}]
    assert capsys.readouterr().out == expected(messages, modalities="text").text + "\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "there is nothing to answer; expected a text, --audio or --messages"),
        (["--json"], "there is nothing to answer; "),
        (["x", "--out", "a.mp3"], "a.mp3 is not the name of a WAV file; "),
        (["x", "--audio", "question.wav", "--out", "question.wav"], "--out names question.wav, which the same "),
        (["x", "--out", "no/a.wav"], "no/a.wav cannot be written: there is no such folder"),
        (["x", "--audio", "none.wav"], "there is no file none.wav"),
        (["x", "--audio", "box"], "box is a directory, and one sound file is expected"),
        (["x", "--audio", ""], "message 1, part 1: the path of the recording is empty; "),
        (["--messages", "recording.json"], "note.txt is not a sound file that can be read: it is a text; "),
        (["x", "--audio", "a" * 300], "a" * 200 + " cannot be opened: File name too long"),
        (["-", "--audio", "-"], "- stands for standard input, and both "),
        (["--messages", "none.json"], "none.json cannot be read: No such file"),
        (["--messages", "/dev/zero"], "/dev/zero cannot be read: it is a pipe or a device; "),
        (["--messages", "question.wav"], "question.wav cannot be read: it is not UTF-8 text at byte "),
        (["--messages", "note.txt"], "note.txt is not JSON: "),
        (["--messages", "number.json"], "number.json holds no list of messages; "),
        (["--messages", "answered.json"], "message 2, the last one, is from the assistant; "),
        (
            ["x", "--messages", "system.json", "--system", "y"],
            "system.json begins with a system message, and ",
        ),
        ([""], "message 1 is empty; expected a text or a recording"),
        (["x", "--cfg", "0.5"], "option cfg of fake-audio is 0.5; expected 1 to 20"),
        (["x", "--modalities", "video"], "option modalities of fake-audio is 'video'; expected one of auto, "),
        (["x", "--beam-size", "3"], "fake-audio has no option beam_size; "),
    ],
)
def test_bad_input_raises_one_line_error(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("box").mkdir(exist_ok=True)
    Path("note.txt").write_text("a note")
    part = {"type": "audio", "audio": "note.txt"}
    Path("recording.json").write_text(json.dumps([{"role": "user", "content": [part]}]))
    Path("number.json").write_text("3")
    Path("answered.json").write_text('[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]')
    Path("system.json").write_text('[{"role": "system", "content": "x"}]')
    assert main(["chat", "-m", "fake-audio", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and captured.err.startswith(f"workbench: {message}")


def test_model_without_chat_is_refused_before_loading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_sensevoice(tmp_path / "tiny")
    assert main(["chat", "hello", "-m", str(model)]) == 2
    assert (
        "cannot answer conversations; to chat, open a language model or a model that speaks" in capsys.readouterr().err
    )


# In a terminal.


class Terminal:
    """`workbench chat` at the other end of a terminal; its program begins with `setup`."""

    def __init__(self, *words: str, setup: str = ""):
        code = f"from workbench.isolation import serial; serial.CHILD = {CHILD!r}; from workbench.cli import program"
        command = [sys.executable, "-c", f"{setup}{code}; import sys; sys.exit(program.main())", "chat", *words]
        self.controller, device = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=device,
            stdout=device,
            stderr=device,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8:strict"},
        )
        os.close(device)
        self.output = ""

    def until(self, pattern: str, patience: float = PATIENCE) -> str:
        """Reads until the pattern; returns all text since the last call."""
        end = time.monotonic() + patience
        while not (match := re.search(pattern, self.output)):
            assert time.monotonic() < end, self.output
            if select.select([self.controller], [], [], 1.0)[0]:
                self.output += os.read(self.controller, 4096).decode(errors="replace").replace("\r\n", "\n")
        text, self.output = self.output[: match.end()], self.output[match.end() :]
        return text

    def say(self, line: str) -> None:
        os.write(self.controller, f"{line}\n".encode())

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """Sends the signal of Ctrl-C or another one."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Waits for the end and returns the exit status."""
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            os.close(self.controller)


def test_terminal_chat_handles_messages_and_commands() -> None:
    terminal = Terminal("-m", "fake-audio", *SPEAK)
    assert "/help lists the commands" in terminal.until("> ")
    terminal.say("say three")
    first = expected("say three")
    text = terminal.until("s of audio; /save FILE.wav writes it\n.*> ")
    assert first.text in text
    terminal.say("/save saved.wav")
    terminal.until("wrote saved.wav\n.*> ")
    assert soundfile.info("saved.wav").frames == len(first.audio)  # type: ignore[arg-type]
    terminal.say("/nonsense")
    terminal.until("there is no command /nonsense; expected one of /audio, /system, /save, /new, /help, /quit\n.*> ")
    terminal.say("/audio none.wav")
    terminal.until("there is no file none.wav\n.*> ")
    terminal.say("/audio question.wav")
    terminal.until("question.wav, 1.0 s, goes with your next message; .*\n.*> ")
    terminal.say("what?")
    parts = [{"type": "audio", "audio": "question.wav"}, {"type": "text", "text": "what?"}]
    second = expected([{"role": "user", "content": "say three"}, first.message(), {"role": "user", "content": parts}])
    assert second.text in terminal.until("s of audio; /save FILE.wav writes it\n.*> ")
    terminal.say("/new")
    terminal.until("the conversation is forgotten\n.*> ")
    terminal.say("/system be brief")
    terminal.until("the system message is set\n.*> ")
    terminal.say("say three")
    third = expected([{"role": "system", "content": "be brief"}, {"role": "user", "content": "say three"}])
    assert third.text in terminal.until("s of audio; /save FILE.wav writes it\n.*> ")
    terminal.say("/help")
    terminal.until("Ctrl-C stops an answer and keeps the answer so far; at the prompt, .*\n.*> ")
    terminal.say("/quit")
    assert terminal.end() == 0


def test_terminal_chat_keeps_a_recording_whose_file_is_replaced_before_the_next_turn() -> None:
    turns = [noise(seconds)[0] for seconds in (0.6, 0.9)]
    terminal = Terminal("-m", "fake-audio", *SPEAK, "--out", "reply.wav")
    terminal.until("> ")
    messages: list[object] = []
    for turn in turns:
        soundfile.write("turn.wav", turn, 16000, subtype="FLOAT")
        terminal.say("/audio turn.wav")
        terminal.until("turn.wav, .* s, goes with your next message; .*\n.*> ")
        terminal.say("")
        messages.append({"role": "user", "content": [{"type": "audio", "audio": (turn, 16000)}]})
        answer = expected(messages)
        assert answer.text in terminal.until("s of audio\n.*> ")
        messages.append(answer.message())
    terminal.say("/audio reply.wav")
    terminal.until("--out names reply.wav, which the same command uses for something else; .*\n.*> ")
    terminal.say("/quit")
    assert terminal.end() == 0


def test_terminal_chat_reads_quoted_names_and_drops_recordings_that_are_refused() -> None:
    Path("my question.wav").write_bytes(Path("question.wav").read_bytes())
    soundfile.write("silent.wav", [0.0] * 16000, 16000)
    terminal = Terminal("-m", "fake-audio", *SPEAK)
    terminal.until("> ")
    for name in ("'my question.wav'", r"my\ question.wav", "my question.wav"):
        terminal.say(f"/audio {name}")
        terminal.until("my question.wav, 1.0 s, goes with your next message; .*\n.*> ")
    terminal.say("/audio silent.wav")
    terminal.until("silent.wav, 1.0 s, goes with your next message; .*\n.*> ")
    terminal.say("what?")
    terminal.until(
        "part 4: the recording of 1.0 s is silent; .*\n4 recordings would go with your next message; .*\n.*> "
    )
    terminal.interrupt()
    terminal.until("> ")
    terminal.say("/save")
    terminal.until("there is no audio to save; .*\n.*> ")
    terminal.say("say three")
    assert expected("say three").text in terminal.until("s of audio; /save FILE.wav writes it\n.*> ")
    terminal.say("/save")
    terminal.until("no file is named; expected /save and the name of a WAV file\n.*> ")
    terminal.say("/quit")
    assert terminal.end() == 0


def test_terminal_chat_goes_on_after_a_line_in_another_encoding() -> None:
    terminal = Terminal("-m", "fake-audio", *SPEAK)
    terminal.until("> ")
    os.write(terminal.controller, b"caf\xff\n")
    terminal.until("workbench: the line is not utf-8, the encoding of this terminal; type it again\n.*> ")
    terminal.say("say three")
    assert expected("say three").text in terminal.until("s of audio; /save FILE.wav writes it\n.*> ")
    terminal.say("/quit")
    assert terminal.end() == 0


def test_ctrl_c_in_terminal_chat_stops_the_answer_and_keeps_the_partial_answer() -> None:
    terminal = Terminal("-m", "slow", "--modalities", "audio", "--max-audio-rows", "1900")
    terminal.until("> ")
    terminal.say("say three")
    terminal.until("speaking: 20 rows")
    terminal.interrupt()
    terminal.until("stopped; the answer so far stays in the conversation\n")
    terminal.until("s of audio; /save FILE.wav writes it\n.*> ")
    terminal.say("/save stopped.wav")
    terminal.until("wrote stopped.wav\n.*> ")
    assert soundfile.info("stopped.wav").frames > 0
    terminal.say("/quit")
    assert terminal.end() == 0


@pytest.mark.parametrize("answering", [True, False])
def test_sigterm_ends_a_chat_in_a_terminal(answering: bool) -> None:
    terminal = Terminal("-m", "slow", "--modalities", "audio", "--max-audio-rows", "1900")
    terminal.until("> ")
    if answering:
        terminal.say("say three")
        terminal.until("speaking: 20 rows")
    terminal.interrupt(signal.SIGTERM)
    terminal.until("workbench: stopped\n")
    assert terminal.end() == 143


@pytest.mark.parametrize(
    ("number", "output", "status"), [("SIGTERM", "workbench: stopped\n", 143), ("SIGINT", "> ", 0)]
)
def test_signal_that_does_not_interrupt_the_wait_for_a_line_is_seen(
    number: str, output: str, status: int, tmp_path: Path
) -> None:
    """A signal that another thread receives interrupts nothing, like one between the prompt and the wait."""
    os.mkfifo(pipe := tmp_path / "now")
    terminal = Terminal("-m", "fake-audio", *SPEAK, setup=SIGNALLED.format(place=str(pipe), number=number))
    terminal.until("> ")
    pipe.write_bytes(b"now")
    terminal.until(output)
    if not status:
        terminal.say("/quit")
    assert terminal.end() == status


def test_ctrl_c_during_a_single_answer_saves_the_partial_audio() -> None:
    terminal = Terminal("x", "-m", "slow", "--modalities", "audio", "--max-audio-rows", "1900", "--out", "part.wav")
    terminal.until("speaking: 20 rows")
    terminal.interrupt()
    terminal.until("workbench: stopped\n")
    assert terminal.end() == 130 and soundfile.info("part.wav").frames > 0
