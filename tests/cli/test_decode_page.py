"""docs/decoding.md: its programs and commands run unchanged, and it documents every option."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from workbench.cli.commands import main
from workbench.core.options import option_specs
from workbench.decoding.ctc_options import CtcBeamOptions

PAGE = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_programs_and_commands_of_decoding_md_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    making, searching, *_ = blocks("python")
    exec(compile(making, "docs/decoding.md", "exec"), {})
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(searching, "docs/decoding.md", "exec"), {})
    assert output.getvalue().splitlines()[0].split()[1:] == ["for", "two"]
    plain, boosted = (shlex.split(line)[1:] for line in blocks("sh")[0].splitlines())
    assert main(plain) == 0
    assert capsys.readouterr().out.splitlines()[2].endswith("faortuw")
    assert main(boosted) == 0
    result = json.loads(capsys.readouterr().out)
    [documented] = blocks("text")
    assert documented.startswith(json.dumps(result)[: documented.index('"score"')])


def test_homophone_example_of_decoding_md_gives_the_expected_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [block] = [block for block in blocks("sh") if block.startswith("cd ")]
    folder, command, _ = map(shlex.split, block.splitlines())
    monkeypatch.chdir(ROOT / folder[1])
    assert main(command[1:]) == 0
    assert capsys.readouterr().out.splitlines()[2].endswith("he won two to one")


def test_every_decoding_option_is_documented() -> None:
    documented = set(re.findall(r"--([a-z-]+)", PAGE))
    assert {spec.name.replace("_", "-") for spec in option_specs(CtcBeamOptions)} <= documented
