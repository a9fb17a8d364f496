"""Families from other packages: the example of docs/families.md by shell and by Python, and packages with faults."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.outside_family import PAGE, ROOT, add_package, checkpoint, on_the_path, page_files, tiny_ctc
from workbench.cli import commands
from workbench.cli.arguments.parser import parser
from workbench.core.errors import BadInput
from workbench.core.settings import SETTINGS, SessionSpec
from workbench.families import FAMILIES, family_of
from workbench.families.outside import RESERVED
from workbench.isolation.loader import open_here
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry

Capture = pytest.CaptureFixture[str]
SAMPLE = ROOT / "assets" / "samples" / "three_seven_one.wav"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with the page's family, not on Python's path."""
    folder = tmp_path_factory.mktemp("site")
    tiny_ctc(folder)
    return folder


@pytest.fixture(scope="module")
def model(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint directory of that family."""
    pytest.importorskip("torch")
    return checkpoint(site, tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def package_on_path(site: Path) -> Iterator[None]:
    """Puts the package on Python's path."""
    with on_the_path(site):
        yield


@pytest.fixture
def listed_card(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Adds a card of the checkpoint to the user's list; returns its id."""
    file = tmp_path / "models.toml"
    source = f"source = {{ directory = {json.dumps(str(model))} }}"
    file.write_text(f'[[model]]\nid = "mine"\nname = "Mine"\nfamily = "tiny_ctc"\n{source}\n')
    monkeypatch.setenv("WORKBENCH_MODELS", str(file))
    return "mine"


def run(capsys: Capture, *words: str) -> tuple[int, str, str]:
    try:
        status = commands.main(list(words))
    except SystemExit as left:
        status = int(left.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


# The example of the page.


@pytest.mark.slow
def test_every_command_in_families_md_runs(
    package_on_path: None, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Runs the page's commands unchanged, except pip and the program that the fixture runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny-checkpoint").symlink_to(model)
    (tmp_path / "talk.wav").symlink_to(SAMPLE)
    [block] = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [words for line in block.splitlines() if (words := shlex.split(line))[0] == "workbench"]
    outputs = {}
    for words in lines:
        status, outputs[words[1]], err = run(capsys, *words[1:])
        assert status == 0, (words, outputs[words[1]], err)
    assert "tiny-checkpoint: Tiny CTC, on pytorch" in outputs["options"] and "--blank-penalty" in outputs["options"]
    assert re.fullmatch("[a-h]+", outputs["transcribe"].strip())
    assert "Within tolerance" in outputs["compare"]
    assert "pytorch:f64 (within)" in outputs["parity"] and "own.safetensors (within)" in outputs["parity"]
    assert "encoder.layers.1" in outputs["parity"]


def test_family_option_is_validated_on_the_command_line(package_on_path: None, model: Path, capsys: Capture) -> None:
    words = ("transcribe", str(SAMPLE), "-m", str(model))
    assert run(capsys, *words, "--blank-penalty", "101") == (
        2,
        "",
        f"workbench: option blank_penalty of {model} is 101.0; expected 0 to 100\n",
    )


def test_models_command_lists_the_external_family_in_a_new_process(
    site: Path, listed_card: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}")
    command = [sys.executable, "-m", "workbench", "models"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = process.stdout.splitlines()
    card = lines[lines.index("mine: Mine") :]
    assert card[1:4] == [
        "  pytorch: ready",
        "  gguf: Tiny CTC has no gguf network; use pytorch",
        "  vllm: Tiny CTC has no vllm network; use pytorch",
    ]
    assert "cannot be used" not in process.stdout + process.stderr


def test_external_family_transcribes_and_traces_in_python(package_on_path: None, model: Path) -> None:
    with Registry() as registry, registry.open(model) as session:
        plain, eager = (session.transcribe(SAMPLE, blank_penalty=penalty) for penalty in (0.0, 100.0))
        assert set(plain.text) <= set("abcdefgh") and len(eager.tokens) >= len(plain.tokens)
        trace = session.trace(SAMPLE, stages="encoder.*")
        assert list(trace) == ["encoder.layers.0", "encoder.layers.1", "encoder.output"]
        assert trace["encoder.output"].shape[1] == 32
        assert "blank_penalty" in inspect.signature(session.transcribe).parameters
        with pytest.raises(BadInput, match="has no option blank_penalt; did you mean blank_penalty"):
            session.transcribe(SAMPLE, blank_penalt=1.0)


def test_damaged_checkpoint_of_an_external_family_raises_one_line_error(package_on_path: None, tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text("{}")
    with Registry() as registry, pytest.raises(BadInput, match=r'/tiny\.json cannot be read; expected {"letters": '):
        registry.open(tmp_path)


def test_external_family_does_not_change_the_built_in_families(package_on_path: None) -> None:
    assert list(FAMILIES) == [
        "sensevoice",
        "paraformer",
        "funasr_nano",
        "fireredasr",
        "fsmn_vad",
        "speechlm",
        "tiny_ctc",
        "causal_lm",
    ]
    assert FAMILIES.refused == ()
    assert FAMILIES["tiny_ctc"].package == "tiny-ctc 0.1" and not FAMILIES["sensevoice"].package


def test_unknown_directory_error_lists_the_files_of_the_external_family(package_on_path: None, tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"FireRedASR-LLM has a model\.pth\.tar, .*, Tiny CTC has a tiny\.json, a language model"
    ):
        family_of(tmp_path)


def test_worker_without_the_package_raises_an_error() -> None:
    with pytest.raises(
        BadInput, match="finds no family 'tiny_ctc'; install the package that has it, or put its folder"
    ):
        open_here(SessionSpec("mine", "tiny_ctc", "pytorch", Path()))


# The page itself.


def test_files_shown_in_families_md_are_complete_and_formatted(tmp_path: Path) -> None:
    files = page_files()
    assert set(files) == {"tiny_ctc/__init__.py", "tiny_ctc/pytorch.py", "make_checkpoint.py"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "ruff", "format", "--check", "--line-length", "120", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout


def test_names_listed_in_families_md_exist() -> None:
    pytest.importorskip("torch")
    names = re.findall(
        r"`(workbench\.[\w.]+\.\w+)`", PAGE.read_text(encoding="utf-8").split("## What you can build on")[1]
    )
    assert len(names) > 20
    for name in names:
        module, _, part = name.rpartition(".")
        assert hasattr(import_module(module), part), name
    used = set(re.findall(r"^from (workbench[\w.]*) import", "\n".join(page_files().values()), flags=re.MULTILINE))
    assert used <= {name.rpartition(".")[0] for name in names}


# Packages with a fault.

GOOD = """
from dataclasses import dataclass
from workbench.core.options import ListeningOptions, option
from workbench.families import Cell, Family
from workbench.families.family import GgufParts

@dataclass(frozen=True)
class Options(ListeningOptions):
    colour: str = option("red", "of nothing")

@dataclass(frozen=True)
class Flag(ListeningOptions):
    model: str = option("", "of nothing")

@dataclass(frozen=True)
class Negative(ListeningOptions):
    no_itn: bool = option(False, "of nothing")

@dataclass(frozen=True)
class Other(ListeningOptions):
    itn: str = option("", "of nothing")

def never(directory):
    return False

def fails(directory):
    raise RuntimeError("no such\\nthing")

def family(**changes):
    usual = dict(name="odd", title="Odd", module="odd", recognise="never", options="Options")
    return Family(**{**usual, "cells": {"pytorch": Cell("odd_pytorch")}, **changes})

"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("raise SystemExit('I stop here')", "SystemExit: I stop here"),
        (
            "FAMILY = 3",
            "odd:FAMILY is of type int; expected a workbench.families.Family, or a function that returns one",
        ),
        (
            "FAMILY = family(name='sensevoice')",
            "the name 'sensevoice' is taken: the workbench has a family of that name",
        ),
        (
            "FAMILY = family(name='Odd One')",
            "its name is 'Odd One'; expected lower-case letters, digits and underscores",
        ),
        ("FAMILY = family(cells={'onnx': Cell('x')})", "it has a cell for 'onnx'; expected one of pytorch, gguf, vllm"),
        (
            "FAMILY = family(cells={'gguf': Cell(reason='no')})",
            "none of its cells has a module, so that it runs nowhere",
        ),
        ("FAMILY = family(recognise='nobody')", "AttributeError: module 'odd' has no attribute 'nobody'"),
        (
            "FAMILY = family(options='Flag')",
            "its option 'model' has the name of a flag or parameter that every model has",
        ),
        (
            "FAMILY = family(options='Negative')",
            "its option 'no_itn' makes no flag; expected lower-case letters, digits",
        ),
        (
            "FAMILY = family(options='Other')",
            "its option 'itn' is of type str, and that of Fun-ASR-Nano is of type bool",
        ),
        (
            "FAMILY = lambda: family(gguf=GgufParts(('qwen3',)))",
            "its GGUF architecture 'qwen3' is taken: files of Causal language model have it",
        ),
    ],
)
def test_faulty_package_is_reported_and_other_families_stay_usable(code: str, reason: str, tmp_path: Path) -> None:
    add_package(tmp_path, "odd-one", {"odd.py": GOOD + code}, {"odd": "odd:FAMILY"})
    tiny_ctc(tmp_path)
    with on_the_path(tmp_path):
        [sentence] = FAMILIES.refused
        assert sentence.startswith(f"the family 'odd' of the package odd-one 0.1 cannot be used: {reason}")
        assert "tiny_ctc" in FAMILIES and "odd" not in FAMILIES
        assert [bad.reason for bad in Registry().bad_cards()] == [sentence]
        parser()  # all commands are there


def test_duplicate_family_name_is_refused_for_the_second_package(site: Path, tmp_path: Path, capsys: Capture) -> None:
    tiny_ctc(tmp_path)
    add_package(tmp_path, "zz-copy", {}, {"copy": "tiny_ctc:FAMILY"})
    with on_the_path(tmp_path):
        status, out, _ = run(capsys, "models")
    assert status == 0 and out.splitlines()[-1] == (
        "the family 'copy' of the package zz-copy 0.1 cannot be used: the name 'tiny_ctc' is taken: the package "
        "tiny-ctc 0.1 has it"
    )


def test_failing_recognise_function_does_not_block_other_families(tmp_path: Path) -> None:
    add_package(tmp_path, "odd-one", {"odd.py": GOOD + "FAMILY = family(recognise='fails')"}, {"odd": "odd:FAMILY"})
    (tmp_path / "empty").mkdir()
    with on_the_path(tmp_path):
        (tmp_path / "language").mkdir()
        (tmp_path / "language" / "config.json").write_text('{"model_type": "qwen3"}')
        assert family_of(tmp_path / "language").name == "causal_lm"
        with pytest.raises(
            BadInput, match=r"\(Odd of the package odd-one 0\.1 failed to look at it: RuntimeError: no such thing"
        ):
            family_of(tmp_path / "empty")


def test_package_that_reads_families_during_its_import_gets_the_built_in_families(tmp_path: Path) -> None:
    code = "from workbench.families import FAMILIES\nSEEN = list(FAMILIES)\nFAMILY = family()"
    add_package(tmp_path, "odd-one", {"odd.py": GOOD + code}, {"odd": "odd:FAMILY"})
    with on_the_path(tmp_path):
        assert "odd" in list(FAMILIES)
        assert "odd" not in sys.modules["odd"].SEEN and "sensevoice" in sys.modules["odd"].SEEN


def test_every_flag_and_parameter_is_a_reserved_option_name() -> None:
    names = set()
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                if any(each.dest.startswith("option_") for each in command._actions):
                    own = [each for each in command._actions if not each.dest.startswith("option_")]
                    names |= {each.dest for each in own}
                    names |= {
                        flag[2:].replace("-", "_") for each in own for flag in each.option_strings if flag[:2] == "--"
                    }
    for call in (
        "stream",
        "stream_batch",
        "transcribe",
        "generate_stream",
        "generate",
        "converse",
        "trace",
        "neighbours",
    ):
        names |= set(inspect.signature(getattr(OpenSession, call)).parameters)
    assert {name for name in names - set(SETTINGS) if not name.startswith("no_")} == set(RESERVED)
