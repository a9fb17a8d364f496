"""Conversions in a child process, which is forked where a fork server is running and started anew elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.tiny_checkpoints import tiny_sensevoice
from workbench.artifacts import process
from workbench.artifacts.process import run_child
from workbench.core.errors import BadInput, Cancelled
from workbench.formats.gguf_file import read_gguf
from workbench.prepared.kinds import Kind
from workbench.prepared.pool import PREPARED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")

KIND = Kind("pytorch", language=False)


@pytest.fixture(params=["forked", "started"])
def start_method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Sets how conversions start their process; the test fails if they start it in the other way."""
    PREPARED.wait_for(KIND, "a conversion")
    forks: list[bool] = []
    fork = process._forked

    def forked(*arguments: Any) -> Any:
        child = fork(*arguments) if request.param == "forked" else None
        forks.append(child is not None)
        return child

    monkeypatch.setattr(process, "_forked", forked)
    yield str(request.param)
    assert forks == [request.param == "forked"]


def descendants() -> set[int]:
    return {each.pid for each in psutil.Process().children(recursive=True)}


def test_child_process_converts_and_reports_progress(start_method: str, tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    path = tmp_path / "it.gguf"
    activities: list[str] = []
    arguments = {
        "directory": str(directory),
        "family": "sensevoice",
        "quantizations": ["f16"],
        "files": {"f16": str(path)},
    }
    result = run_child(arguments, "tiny", lambda fraction, activity: activities.append(activity))
    assert result["paths"] == [str(path)] and path.stat().st_size > 1000 and result["outside"] == []
    assert any("writing f16" in activity for activity in activities)
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["it.gguf"]


def test_child_process_writes_several_types_and_keeps_files_that_exist(start_method: str, tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    files = {each: tmp_path / f"{each}.gguf" for each in ("f32", "f16", "q8_0")}
    files["f16"].write_bytes(b"whole")
    fractions: list[float] = []
    arguments = {
        "directory": str(directory),
        "family": "sensevoice",
        "quantizations": ["q8_0", "f16", "auto"],
        "files": {name: str(path) for name, path in files.items()},
    }
    result = run_child(arguments, "tiny", lambda fraction, activity: fractions.append(fraction))
    assert result["paths"] == [str(files[each]) for each in ("q8_0", "f16", "f32")]
    assert files["f16"].read_bytes() == b"whole"
    assert [read_gguf(files[each]).quantization for each in ("q8_0", "f32")] == ["q8_0", "f32"]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0


def test_error_in_the_child_process_is_raised_in_the_caller(start_method: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected one of Paraformer"):
        run_child({"directory": str(tiny_sensevoice(tmp_path / "tiny")), "family": "paraformer"}, "tiny")


def test_child_process_ends_and_leaves_no_files_when_the_caller_cancels(start_method: str, tmp_path: Path) -> None:
    before = descendants()

    def stop(fraction: float, activity: str) -> None:
        raise Cancelled("no more")

    folder = tmp_path / "folder"
    folder.mkdir()
    arguments = {"directory": str(tiny_sensevoice(tmp_path / "tiny")), "family": "sensevoice", "quantizations": ["f16"]}
    with pytest.raises(Cancelled):
        run_child({**arguments, "files": {"f16": str(folder / "it.gguf")}}, "tiny", stop)
    assert not list(folder.glob("*.part"))
    assert descendants() <= before
