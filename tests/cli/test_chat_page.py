"""docs/chat.md: its programs and commands run unchanged, with a fake network in place of the demo model."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import soundfile

import workbench
from tests.support.processes import ROOT
from tests.support.tiny_checkpoints import noise
from workbench.cli import commands
from workbench.families.speechlm.model import SpeechLmOptions
from workbench.isolation import serial
from workbench.registry.registry import Registry
from workbench.session.conversation import Answer

PAGE = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")
EARLIER = '[{"role": "user", "content": "say three"}, {"role": "assistant", "content": "three"}]'


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that the page names, and a model in place of the demo."""
    monkeypatch.setattr(serial, "CHILD", ("-P", "-m", "tests.support.conversing_worker"))
    (tmp_path / "fake-audio").mkdir()
    (tmp_path / "fake-audio" / "config.json").write_text('{"model_type": "bagpiper"}')
    (tmp_path / "conversation.json").write_text(EARLIER)
    soundfile.write(tmp_path / "question.wav", noise(1.0)[0], 16000)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python_program_of_chat_md_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Replaced(Registry):
        def open(self, model: Any, **settings: Any) -> Any:
            assert model == "demo/speechlm"
            return super().open("fake-audio", **settings)

    monkeypatch.setattr(workbench, "Registry", Replaced, raising=False)
    [program] = blocks("python")
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(program, "docs/chat.md", "exec"), {})
    assert output.getvalue().splitlines()[-1].endswith(("stop", "length", "cancelled"))
    assert soundfile.info("answer.wav").frames > 0


def test_shell_commands_of_chat_md_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [shell] = blocks("sh")
    for line in shell.splitlines():
        words = [word.replace("demo/speechlm", "fake-audio") for word in shlex.split(line)]
        assert commands.main(words[1:]) == 0, capsys.readouterr().err
    assert soundfile.info("answer.wav").frames > 0


def test_every_answer_field_and_option_is_documented() -> None:
    documented = set(re.findall(r"`(\w+)`", PAGE))
    about_the_session = {"model", "runtime", "load_seconds", "memory_bytes", "quantization", "layout"}
    assert {field.name for field in fields(Answer)} - about_the_session <= documented
    assert {field.name for field in fields(SpeechLmOptions)} <= documented
