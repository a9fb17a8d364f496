"""Paths: what they name, and errors of the system that are not hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.paths import is_directory


def test_directories_are_told_from_other_paths(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    assert is_directory(tmp_path)
    assert not any(map(is_directory, (file, file / "below", tmp_path / "missing", Path("a\0b"))))
    with pytest.raises(OSError, match="name too long"):
        is_directory(tmp_path / ("x" * 300))
