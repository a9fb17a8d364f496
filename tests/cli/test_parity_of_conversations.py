"""`workbench trace` and `workbench parity` of a model that answers text and speech: inputs, and the commands of
docs/parity.md.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.command_line import Capture, run
from tests.support.processes import ROOT
from tests.support.tiny_checkpoints import noise
from tests.support.tiny_speechlm import tiny_speechlm
from workbench.audio.read import write_wav
from workbench.core.errors import BadInput
from workbench.registry.registry import Registry
from workbench.trace.trace import Trace

pytestmark = pytest.mark.usefixtures("lasting_sessions")
EARLIER = '[{"role": "user", "content": "say three"}, {"role": "assistant", "content": "three"}]'
STAGES = "tower.output,llm.norm"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, a recording, and a conversation."""
    folder = tmp_path_factory.mktemp("conversations")
    tiny_speechlm(folder / "speechlm")
    write_wav(folder / "question.wav", noise(1.0)[0])
    (folder / "conversation.json").write_text(EARLIER, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def trace(capsys: Capture, file: Path, *words: str) -> Trace:
    status, _, err = run(capsys, "trace", *words, "-m", "speechlm", "--stages", STAGES, "--out", str(file))
    assert (status, err) == (0, [])
    return Trace.load(file)


def test_trace_accepts_text_recordings_and_messages(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "t.safetensors"
    from_text = trace(capsys, file, "say three")
    assert list(from_text) == ["llm.norm"]
    from_audio = [trace(capsys, file, *words) for words in (("question.wav",), ("--audio", "question.wav"))]
    assert from_audio[0].meta["input_digest"] == from_audio[1].meta["input_digest"] and "tower.output" in from_audio[0]
    from_both = trace(capsys, file, "say three", "--audio", "question.wav")
    assert len(from_both["llm.norm"]) > len(from_audio[0]["llm.norm"]) and "tower.output" in from_both
    from_messages = trace(capsys, file, "and four?", "--messages", "conversation.json")
    assert len(from_messages["llm.norm"]) > len(from_text["llm.norm"])
    with Registry(isolate=False) as registry, registry.open("speechlm") as session:
        for source in ("question.wav", Path("question.wav"), noise(1.0)):
            assert "tower.output" in session.trace(source, stages="tower.output")


@pytest.mark.parametrize(
    "words, sentence",
    [
        ((), "speechlm has nothing to answer; expected a text, a recording, --audio or --messages"),
        (("no.wav",), "there is no file no.wav"),
        (("--messages", "conversation.json"), "message 2, the last one, is from the assistant; expected one from the"),
    ],
)
def test_missing_user_message_is_refused(
    capsys: Capture, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    status, out, err = run(capsys, "trace", *words, "-m", "speechlm", "--out", str(tmp_path / "t.safetensors"))
    assert (status, out, len(err)) == (2, [], 1) and sentence in err[0]


def test_speech_recogniser_refuses_the_audio_option(capsys: Capture, tmp_path: Path) -> None:
    words = ("--audio", "question.wav", "-m", "demo/sensevoice", "--out", str(tmp_path / "t.safetensors"))
    status, _, [error] = run(capsys, "trace", *words)
    assert status == BadInput.exit_status and error.startswith("workbench: --audio is for models that answer text and")


def test_conversation_commands_of_parity_md_run(capsys: Capture) -> None:
    page = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")
    [shell] = re.findall(r"## Conversations\n\n```sh\n(.*?)```", page, flags=re.DOTALL)
    lines = [shlex.split(line)[1:] for line in shell.splitlines()]
    assert len(lines) == 3
    for words in lines:
        assert words[1] == "demo/speechlm"
        limits = ("--max-text-tokens", "3", "--max-audio-rows", "8", "--min-audio-rows", "0", "--no-float64")
        status, out, _ = run(capsys, words[0], "speechlm", *words[2:], *limits, "--no-same-precision")
        assert status in (0, 1) and out[0].startswith("pytorch:bf16 ("), out
