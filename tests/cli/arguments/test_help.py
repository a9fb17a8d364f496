"""`--help` output: lines fit a terminal, examples are accepted by the parser, and flags are in groups."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from workbench.cli.arguments.help_text import EXAMPLES, one_line
from workbench.cli.arguments.parser import parser
from workbench.cli.commands import main
from workbench.core.options import option_specs
from workbench.families import FAMILIES

WIDTH = 80
PARSER = parser()  # created once, as this takes longer than a test
LONG = "x" * 100_000


def commands() -> dict[str, argparse.ArgumentParser]:
    [subparsers] = (action for action in PARSER._actions if isinstance(action, argparse._SubParsersAction))
    return dict(subparsers.choices)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


@pytest.mark.parametrize("command", ["", *commands()])
def test_help_lines_fit_the_terminal_and_flags_are_not_broken(command: str) -> None:
    text = (commands()[command] if command else PARSER).format_help()
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []
    assert text.startswith("usage: workbench") and "suppress" not in text.lower()
    assert re.findall(r"[a-z]-$", text, flags=re.MULTILINE) == []


@pytest.mark.parametrize("command", commands())
def test_every_command_has_examples_that_the_parser_accepts(command: str) -> None:
    assert 2 <= len(EXAMPLES[command]) <= 4
    text = commands()[command].format_help()
    for title, line in EXAMPLES[command]:
        assert f"  # {title}\n  {line}" in text
        words = shlex.split(line.split("| ")[-1].replace("\\\n", " "))
        if any(mark in words for mark in "<>"):
            words = words[: min(words.index(mark) for mark in "<>" if mark in words)]
        assert words[0] == "workbench" and PARSER.parse_args(words[1:]).command == command


def test_flags_are_grouped_and_model_specific_flags_are_listed_by_name_only() -> None:
    text = commands()["transcribe"].format_help()
    places = [text.index(f"\n{title}:\n") for title in ("input and output", "model", "speech and segments", "engine")]
    assert places == sorted(places) and "\npositional arguments:" not in text and "\ndecoding:" not in text
    assert "\n  --vad VAD " in text and "\n  --beam-size" not in text
    assert "--beam-size" in text and "`workbench options MODEL`" in " ".join(text.split())
    assert "\ndecoding:\n" in commands()["generate"].format_help()


@pytest.mark.parametrize(
    "command", ["transcribe audio.wav -m x", "trace audio.wav -m x --out t", "parity x a --candidates y"]
)
def test_options_of_every_family_are_accepted_without_help_text(command: str) -> None:
    for family in FAMILIES.values():
        for spec in option_specs(family.options_class):
            flag = f"--{spec.name.replace('_', '-')}"
            value = [] if spec.kind is bool else ["1"]
            parsed = PARSER.parse_args([*command.split(), flag, *value])
            assert getattr(parsed, f"option_{spec.name}") not in (None, [])


def test_help_of_evaluate_names_the_exit_status_of_a_model_that_never_worked() -> None:
    text = " ".join(commands()["evaluate"].format_help().split())
    assert "1 when a model has failed on every recording" in text


def test_help_states_limits_and_defaults_of_numeric_options() -> None:
    text = " ".join(commands()["generate"].format_help().split())
    assert "(more than 0, at most 1; default: 1)" in text and "(0, or 0.01 to 100; default: 0)" in text
    assert "by default the runtime decides (1 to 1024)" in text


@pytest.mark.parametrize(
    "words",
    [
        ["transcribe", "short.wav", "-m", "sensevoice", "--runtime", LONG],
        ["transcribe", "short.wav", "-m", LONG],
        ["app", "--mode", LONG],
        ["parity", "demo/sensevoice", LONG, "--candidates", "gguf"],
        [LONG],
    ],
)
def test_very_long_arguments_are_shortened_in_error_messages(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    try:
        status = main(words)
    except SystemExit as stop:
        status = int(stop.code or 0)
    out, err = capsys.readouterr()
    assert status == 2 and not out and err.count("\n") == 1 and len(err) < 2000 and "_DEBUG" not in err


def test_control_characters_in_file_names_are_escaped() -> None:
    assert one_line("there is no file a\n\x1b[31m\x9b.wav\tb") == "there is no file a \\x1b[31m\\x9b.wav\tb"
    assert one_line("no file txt\u202evaw.exe\u2028b") == "no file txt\\u202evaw.exe b", "a name keeps its direction"


def test_unknown_flag_that_names_a_file_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-dash.wav").touch()
    with pytest.raises(SystemExit, match=r"^2$"):
        parser().parse_args(["transcribe", "-dash.wav", "-m", "demo/sensevoice"])
    hint = "unrecognized arguments: -dash.wav; for the file of this name, write ./-dash.wav"
    assert capsys.readouterr().err == f"workbench transcribe: {hint}; see workbench transcribe --help\n"


@pytest.mark.parametrize(
    "words, name, inputs",
    [
        ("parity demo/qwen3 --narrow one.wav two.wav --candidates gguf", "inputs", ["one.wav", "two.wav"]),
        ("parity demo/qwen3 --candidates gguf one.wav --narrow two.wav -", "inputs", ["one.wav", "two.wav", "-"]),
        ("transcribe one.wav -m demo/sensevoice two.wav", "audio", ["one.wav", "two.wav"]),
        ("transcribe one.wav -m demo/sensevoice", "audio", ["one.wav"]),
    ],
)
def test_inputs_may_stand_behind_flags(words: str, name: str, inputs: list[str]) -> None:
    assert list(map(str, getattr(parser().parse_args(words.split()), name))) == inputs
