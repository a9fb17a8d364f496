"""Temporary folders that are removed with their process."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from workbench.system import tempdirs
from workbench.system.tempdirs import OWNER, make_tempdir, remove_tempdir, tempdir


def test_tempdir_is_private_and_removed_with_its_files() -> None:
    folder = make_tempdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "inner").mkdir()
    (folder / "inner" / "file").touch()
    remove_tempdir(folder)
    assert not folder.exists()
    remove_tempdir(folder)  # and may be gone already


def test_tempdir_of_a_block_records_its_owner_and_is_removed_after_an_error() -> None:
    def fail() -> None:
        with tempdir() as folder:
            seen.append((folder, (folder / OWNER).is_file()))  # a later start removes it if this process is killed
            (folder / "recording.wav").touch()
            raise ZeroDivisionError

    seen: list[tuple[Path, bool]] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    [(folder, owned)] = seen
    assert owned and not folder.exists()


def test_shared_memory_named_after_the_tempdir_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempdirs, "SHARED_MEMORY", tmp_path)
    folder = make_tempdir()
    (folder / "vllm_dist_0123456789").touch()
    (folder / "short").touch()
    for name in ("vllm_dist_0123456789-tp:0_0", "vllm_dist_0123456789-tp:0_1", "vllm_dist_other-tp:0_0", "short-1"):
        (tmp_path / name).touch()
    for name in ("sem.loky-123-abc", "sem.loky-1234-abc"):
        (tmp_path / name).touch()
    remove_tempdir(folder, {123})
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["sem.loky-1234-abc", "short-1", "vllm_dist_other-tp:0_0"]


def test_tempdir_path_is_short_enough_for_a_socket_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("long" * 12)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = make_tempdir()
    assert folder.parent == Path("/tmp")
    remove_tempdir(folder)
