"""Quotas of visitors' files: per visitor, per address and in total."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.core.visitors import Visitor
from workbench.serving.admission.limits import PUBLIC
from workbench.serving.kept_files import FOLDERS, SECRET, KeptFiles, NoRoom

MB = 1 << 20


@pytest.fixture
def files(tmp_path: Path) -> KeptFiles:
    return KeptFiles(tmp_path, replace(PUBLIC, disk_mb_per_visitor=2, per_address=2, disk_mb=8))


def store(files: KeptFiles, visitor: Visitor, age: int) -> str:
    """Stores a file of 1 MB that is `age` seconds old; returns the random name of its folder."""
    folder = files.begin(visitor)
    (folder / "a.wav").write_bytes(bytes(MB))
    os.utime(folder, (time.time() - age, time.time() - age))
    files.end(folder)
    return folder.name


def exist(files: KeptFiles, names: list[str]) -> list[bool]:
    return [files.find(name) is not None for name in names]


def test_quota_of_a_visitor_does_not_delete_files_of_others_at_the_same_address(files: KeptFiles) -> None:
    first, second = (Visitor("10.0.0.1", session) for session in ("anna", "ben"))
    names = [store(files, visitor, 9 - number) for number, visitor in enumerate((first, second, second, second))]
    assert exist(files, names) == [True, False, True, True]


def test_address_quota_limits_the_files_of_all_its_visitors(files: KeptFiles) -> None:
    other_file = store(files, Visitor("10.0.0.2"), 99)
    names = [store(files, Visitor("10.0.0.1", f"visitor {number}"), 9 - number) for number in range(6)]
    assert exist(files, names) == [False, False, True, True, True, True] and exist(files, [other_file]) == [True]


def test_all_visitors_together_have_a_quota(files: KeptFiles) -> None:
    names = [store(files, Visitor(f"10.0.0.{number}"), 99 - number) for number in range(10)]
    assert exist(files, names) == [False, False, *[True] * 8]


def test_a_quota_holds_after_a_restart(files: KeptFiles) -> None:
    names = [store(files, Visitor("10.0.0.1"), 9 - number) for number in range(2)]
    reopened = KeptFiles(files.root, files.limits)
    assert exist(reopened, [*names, store(reopened, Visitor("10.0.0.1"), 0)]) == [False, True, True]


def test_newest_files_stay_after_the_clock_was_set_back(files: KeptFiles) -> None:
    names = [store(files, Visitor("10.0.0.1"), age) for age in (0, 86400, 86399)]
    assert exist(files, names) == [False, True, True]


def test_files_are_removed_after_the_hours_of_the_limits(files: KeptFiles) -> None:
    day = 24 * 3600
    names = [store(files, Visitor("10.0.0.1", str(age)), age) for age in (day + 60, day - 60)]
    filling = files.begin(Visitor("10.0.0.3"))  # a slow upload, which is not complete
    os.utime(filling, (time.time() - 2 * day, time.time() - 2 * day))
    files.remove_expired()
    assert exist(files, names) == [False, True] and filling.is_dir()
    homes = list((files.root / FOLDERS).iterdir())
    assert len(homes) == 2, "the visitor without files has no folder"


def test_expired_files_are_removed_before_files_came_and_in_an_empty_folder(files: KeptFiles) -> None:
    files.remove_expired()
    assert not list(files.root.iterdir())


def test_servers_that_start_at_once_count_a_visitor_as_one(files: KeptFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    second, link = KeptFiles(files.root, files.limits), os.link
    homes = []

    def late(new: Path, path: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        homes.append(second.begin(Visitor("10.0.0.1")).parent)
        link(new, path)

    monkeypatch.setattr(os, "link", late)
    assert files.begin(Visitor("10.0.0.1")).parent == homes[0]


def test_key_that_a_full_disk_left_incomplete_is_made_again(files: KeptFiles) -> None:
    (files.root / SECRET).touch()
    homes = [KeptFiles(files.root, files.limits).begin(Visitor("10.0.0.1")).parent for _ in range(2)]
    assert homes[0] == homes[1]


def test_upload_is_refused_when_the_disk_is_full(files: KeptFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB of the disk stay free for other programs."""
    monkeypatch.setattr("workbench.serving.kept_files.shutil.disk_usage", lambda _: SimpleNamespace(free=69 * MB))
    with pytest.raises(NoRoom, match=r"has 5 MB left, and the file needs 6 MB; try again later, or with a smaller"):
        files.begin(Visitor("10.0.0.1"), 6 * MB)
    assert not [each for each in files.root.rglob("*") if each.is_dir() and len(each.name) == 32], "no folder is left"
    assert files.begin(Visitor("10.0.0.1"), 5 * MB).is_dir()
