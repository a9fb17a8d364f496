"""The child process of a conversion: its messages, and its cleanup when the parent closes the connection."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_checkpoints import tiny_sensevoice

SLOW = """
import sys, time
from workbench.conversion import child, writer

def slowly(tensor, stored, file, progress):
    progress.add(1, tensor.name)
    time.sleep(60)

child.REPORT_SECONDS = 0.0
writer._write_tensor = slowly
print("what a library prints", flush=True)
sys.exit(child.main())
"""


def start(arguments: dict[str, Any], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words, json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_conversion_process_ends_and_removes_partial_files_when_stdin_closes(tmp_path: Path) -> None:
    directory, folder = tiny_sensevoice(tmp_path / "tiny"), tmp_path / "folder"
    folder.mkdir()
    arguments = {"directory": str(directory), "family": "sensevoice", "quantizations": ["f16"]}
    with start({**arguments, "files": {"f16": str(folder / "it.gguf")}}, "-c", SLOW) as process:
        assert process.stdin is not None and process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert next(lines) == "what a library prints\n"
        assert any('"writing f16' in line for line in lines)
        assert [path.suffix for path in folder.iterdir()] == [".part"]
        process.stdin.close()
        assert process.wait(60) == 143
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "arguments, status, error",
    [
        ({"directory": "tiny", "family": "paraformer"}, 2, "BadInput"),
        ({"directory": "tiny"}, 1, "WorkbenchError"),
    ],
)
def test_conversion_process_reports_errors_as_json(
    tmp_path: Path, arguments: dict[str, str], status: int, error: str
) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    with start({**arguments, "directory": str(directory)}, "-m", "workbench.conversion.child") as process:
        assert process.stdout is not None
        messages = [json.loads(line) for line in process.stdout]
        assert process.wait(60) == status
    assert messages[-1]["error"] == error and "\n" not in messages[-1]["sentence"]
