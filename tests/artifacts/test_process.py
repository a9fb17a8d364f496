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
from workbench.prepared.kinds import Kind
from workbench.prepared.pool import PREPARED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")

KIND = Kind("pytorch", language=False)


@pytest.fixture(params=["forked", "started"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How conversions get their process; the test fails if it was otherwise."""
    PREPARED.wait_for(KIND, "a conversion")
    made: list[bool] = []
    fork = process._forked

    def forked(*given: Any) -> Any:
        found = fork(*given) if request.param == "forked" else None
        made.append(found is not None)
        return found

    monkeypatch.setattr(process, "_forked", forked)
    yield str(request.param)
    assert made == [request.param == "forked"]


def descendants() -> set[int]:
    return {each.pid for each in psutil.Process().children(recursive=True)}


def test_child_process_converts_and_reports_progress(how: str, tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    path = tmp_path / "it.gguf"
    heard: list[str] = []
    given = {"directory": str(directory), "family": "sensevoice", "quantization": "f16", "files": {"f16": str(path)}}
    result = run_child(given, "tiny", lambda fraction, said: heard.append(said))
    assert result["path"] == str(path) and path.stat().st_size > 1000 and result["outside"] == []
    assert any("writing f16" in said for said in heard)
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["it.gguf"]


def test_error_in_the_child_process_is_raised_in_the_caller(how: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected one of Paraformer"):
        run_child({"directory": str(tiny_sensevoice(tmp_path / "tiny")), "family": "paraformer"}, "tiny")


def test_child_process_ends_and_leaves_no_files_when_the_caller_cancels(how: str, tmp_path: Path) -> None:
    before = descendants()

    def stop(fraction: float, said: str) -> None:
        raise Cancelled("no more")

    folder = tmp_path / "folder"
    folder.mkdir()
    given = {"directory": str(tiny_sensevoice(tmp_path / "tiny")), "family": "sensevoice", "quantization": "f16"}
    with pytest.raises(Cancelled):
        run_child({**given, "files": {"f16": str(folder / "it.gguf")}}, "tiny", stop)
    assert not list(folder.glob("*.part"))
    assert descendants() <= before
