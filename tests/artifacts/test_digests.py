"""Digests of checkpoint directories: computed from the contents of files, cached while a file is unchanged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench.artifacts.digests
from workbench.artifacts.digests import Digests, listed
from workbench.core.errors import BadInput, Cancelled

NAMES = st.sampled_from(["model.pt", "config.yaml", "inner/config.json", "inner/vocab.json"])
FILES = st.dictionaries(NAMES, st.binary(max_size=40), min_size=1)


def write_files(directory: Path, files: dict[str, bytes]) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


@settings(deadline=None, max_examples=50)
@given(one=FILES, other=FILES)
def test_digests_are_equal_exactly_when_directory_contents_are_equal(
    one: dict[str, bytes], other: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("contents")
    digests = Digests(base / "memory.json")
    places = [write_files(base / "a", one), write_files(base / "b" / "c", other)]
    expected = [digests.of(place) for place in places]
    assert (expected[0] == expected[1]) is (one == other)
    assert [Digests(base / "memory.json").of(place) for place in places] == expected
    assert [Digests(base / "none.json").of(place) for place in places] == expected


def test_file_digests_in_the_cache_are_sha_256(tmp_path: Path) -> None:
    write_files(tmp_path / "a", {"model.pt": b"abc"})
    Digests(tmp_path / "memory.json").of(tmp_path / "a")
    [(name, (size, _, digest))] = json.loads((tmp_path / "memory.json").read_text()).items()
    assert name == str(tmp_path / "a" / "model.pt") and size == 3 and digest == hashlib.sha256(b"abc").hexdigest()


def test_only_changed_files_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench.artifacts.digests, "BLOCK", 2)
    place = write_files(tmp_path / "a", {"model.pt": b"abcd", "config.yaml": b"x"})
    digests = Digests(tmp_path / "memory.json")
    fractions: list[float] = []
    first = digests.of(place, fractions.append)
    assert fractions == [0.2, 0.6, 1.0]
    (place / "README.md").write_text("for people")
    (place / ".hidden").write_text("for nobody")
    fractions.clear()
    assert digests.of(place, fractions.append) == first and fractions == []
    os.utime(place / "model.pt", ns=(1, 1))
    assert digests.of(place, fractions.append) == first and fractions == [0.5, 1.0]
    (place / "model.pt").write_bytes(b"abce")
    assert digests.of(place) != first


def test_changed_file_of_the_same_size_and_time_is_read_again(tmp_path: Path) -> None:
    place, digests = write_files(tmp_path / "a", {"model.pt": b"abcd"}), Digests(tmp_path / "memory.json")
    os.utime(place / "model.pt", ns=(1, 1))  # as an archive without times gives its files
    first, first_listed, first_of_file = digests.of(place), listed(place), digests.of_file(place / "model.pt")
    assert listed(place) == first_listed
    (place / "model.pt").write_bytes(b"abce")
    os.utime(place / "model.pt", ns=(1, 1))
    assert listed(place) != first_listed and digests.of(place) != first
    assert digests.of_file(place / "model.pt") != first_of_file


@pytest.mark.parametrize("memory", [b"", b"[]", b'{"a": 1}', b"\xff", b"[" * 100_000])
def test_damaged_digest_cache_is_rebuilt(memory: bytes, tmp_path: Path) -> None:
    place = write_files(tmp_path / "a", {"model.pt": b"abcd"})
    expected = Digests(tmp_path / "other.json").of(place)
    (tmp_path / "memory.json").write_bytes(memory)
    assert Digests(tmp_path / "memory.json").of(place) == expected


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"the checkpoint directory .* cannot be read"):
        Digests(tmp_path / "memory.json").of(tmp_path / "none")

    def stop(_fraction: float) -> None:
        raise Cancelled("the call was stopped")

    with pytest.raises(Cancelled):
        Digests(tmp_path / "memory.json").of(write_files(tmp_path / "a", {"model.pt": b"abcd"}), stop)
    assert not (tmp_path / "memory.json").exists()
