"""The `workbench` command in this process: what it prints and its exit status."""

from __future__ import annotations

import pytest

from workbench.cli.commands import main

Capture = pytest.CaptureFixture[str]
lasting = pytest.mark.usefixtures("lasting_sessions")


def run(capsys: Capture, *words: str) -> tuple[int, list[str], list[str]]:
    """Exit status, lines of stdout, lines of stderr."""
    try:
        status = main(words)
    except SystemExit as stop:
        status = int(stop.code or 0)
    printed = capsys.readouterr()
    return status, printed.out.splitlines(), printed.err.splitlines()
