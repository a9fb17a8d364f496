"""Quotas of visitors' files: per visitor, per address and in total."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.core.visitors import Visitor
from workbench.serving.kept_files import KeptFiles, NoRoom
from workbench.serving.limits import PUBLIC

MB = 1 << 20


@pytest.fixture
def kept(tmp_path: Path) -> KeptFiles:
    return KeptFiles(tmp_path, replace(PUBLIC, disk_mb_per_visitor=2, per_address=2, disk_mb=8))


def keep(kept: KeptFiles, visitor: Visitor, age: int) -> str:
    """Keeps a file of 1 MB, made so many seconds ago; returns the random name of its folder."""
    folder = kept.begin(visitor)
    (folder / "a.wav").write_bytes(bytes(MB))
    os.utime(folder, (1e9 - age, 1e9 - age))
    kept.end(folder)
    return folder.name


def left(kept: KeptFiles, names: list[str]) -> list[bool]:
    return [kept.find(name) is not None for name in names]


def test_quota_of_a_visitor_does_not_delete_files_of_others_at_the_same_address(kept: KeptFiles) -> None:
    first, second = (Visitor("10.0.0.1", session) for session in ("anna", "ben"))
    names = [keep(kept, visitor, 9 - number) for number, visitor in enumerate((first, second, second, second))]
    assert left(kept, names) == [True, False, True, True]


def test_address_quota_limits_the_files_of_all_its_visitors(kept: KeptFiles) -> None:
    other = keep(kept, Visitor("10.0.0.2"), 99)
    names = [keep(kept, Visitor("10.0.0.1", f"visitor {number}"), 9 - number) for number in range(6)]
    assert left(kept, names) == [False, False, True, True, True, True] and left(kept, [other]) == [True]


def test_all_visitors_together_have_a_quota(kept: KeptFiles) -> None:
    names = [keep(kept, Visitor(f"10.0.0.{number}"), 99 - number) for number in range(10)]
    assert left(kept, names) == [False, False, *[True] * 8]


def test_a_quota_holds_after_a_restart(kept: KeptFiles) -> None:
    names = [keep(kept, Visitor("10.0.0.1"), 9 - number) for number in range(2)]
    again = KeptFiles(kept.root, kept.limits)
    assert left(again, [*names, keep(again, Visitor("10.0.0.1"), 0)]) == [False, True, True]


def test_upload_is_refused_when_the_disk_is_full(kept: KeptFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB of the disk stay free for all else."""
    monkeypatch.setattr("workbench.serving.kept_files.shutil.disk_usage", lambda _: SimpleNamespace(free=69 * MB))
    with pytest.raises(NoRoom, match=r"has 5 MB left, and the file needs 6 MB; try again later, or with a smaller"):
        kept.begin(Visitor("10.0.0.1"), 6 * MB)
    assert not [each for each in kept.root.rglob("*") if each.is_dir() and len(each.name) == 32], "no folder is left"
    assert kept.begin(Visitor("10.0.0.1"), 5 * MB).is_dir()
