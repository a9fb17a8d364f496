"""The JSON files of a checkpoint: what is refused, and with which sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.core.errors import BadInput
from workbench.formats import json_files
from workbench.formats.json_files import read_json_file


def test_object_is_read_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    for encoding in ("utf-8", "utf-8-sig"):
        file.write_text('{"名": [1]}', encoding=encoding)
        assert read_json_file(file) == {"名": [1]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", r"cannot be read as JSON: Expecting property name"),
        (b"[1]", r"holds a list; expected a JSON object"),
        (b"\xff{}", r"cannot be read as JSON: it is not UTF-8 text at byte 0"),
        (b"[" * 100_000, r"cannot be read as JSON: it is nested too deeply"),
    ],
)
def test_damaged_file_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "it").mkdir()
    file = tmp_path / "it" / "config.json"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=rf"^it/config\.json {reason}"):
        read_json_file(file)


def test_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "LARGEST", 1000)
    file = tmp_path / "config.json"
    file.write_bytes(b" " * 998 + b"{}")
    assert read_json_file(file) == {}
    file.write_bytes(b" " * 1001)
    with pytest.raises(BadInput, match=r"config\.json cannot be read as JSON: it has more than 1000 bytes"):
        read_json_file(file)


def test_missing_file_and_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        read_json_file(tmp_path / "config.json")
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(BadInput, match="it is a pipe or a device; expected a file"):
        read_json_file(tmp_path / "config.json")
