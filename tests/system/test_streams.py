"""Closed standard streams, and letters that stdout cannot encode."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from tests.support.processes import ROOT
from workbench.system.streams import print_any_letter


def test_closed_standard_stream_is_replaced_by_dev_null() -> None:
    code = (
        "import os, sys; from workbench.system.streams import open_closed_streams; os.close(2); sys.stderr = None;"
        "open_closed_streams(); print('lost', file=sys.stderr);"
        "print(os.fstat(2).st_rdev == os.stat(os.devnull).st_rdev)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, check=True)
    assert done.stdout == "True\n"


def test_file_names_that_are_not_utf8_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content, encoding="utf-8"))
    print_any_letter()
    sys.stdout.write("é\udcff\n")
    sys.stdout.flush()
    assert content.getvalue() == "é\\udcff\n".encode()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_json_stays_valid_where_stdout_cannot_encode_its_letters(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, text = io.BytesIO(), "é\x81▁一😀\udcff"
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content, encoding=encoding))
    print_any_letter()
    sys.stdout.write(json.dumps(text, ensure_ascii=False))
    sys.stdout.flush()
    assert json.loads(content.getvalue().decode(encoding)) == text
