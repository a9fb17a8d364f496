"""Zip archives with too large, false, hidden or duplicate members: each raises a one-line error at little cost."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.embeddings.files import archive, assert_holds, assert_refused, members, npy, npz
from workbench.core.errors import BadInput
from workbench.embeddings import archive as archives
from workbench.embeddings import payload, read_embedding
from workbench.embeddings.archive import Archive

VALUES = np.arange(40, dtype=np.float32).reshape(5, 8)


def zeros(count: int, header: bytes = b"") -> bytes:
    """An `.npz` file with one compressed member: a header and `count` zeros."""
    file = io.BytesIO()
    zip_file = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with zip_file, zip_file.open("a.npy", "w") as member:
        member.write(header)
        for _ in range(count // 1_000_000):
            member.write(bytes(1_000_000))
    return file.getvalue()


def test_a_zip_bomb_is_refused_before_it_is_inflated() -> None:
    bomb = zeros(300_000_000)
    assert len(bomb) < 2_000_000
    tracemalloc.start()
    try:
        assert_refused(bomb, "the embedding, inflated, has 300 MB; expected at most 256 MB")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_bomb_of_many_members_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "LIMIT", 3_000_000)
    zeroes = {f"a{n}.npy": bytes(1_000_000) for n in range(4)}
    assert_refused(
        archive(zeroes, zipfile.ZIP_DEFLATED), "the embedding, inflated, has 4.0 MB; expected at most 3.0 MB"
    )


@pytest.mark.parametrize("claimed", [0, 10, 128, 1000])
def test_a_member_never_inflates_beyond_its_claimed_size(claimed: int) -> None:
    content = bytearray(zeros(50_000_000, npy(VALUES)[:128]))
    central = content.rindex(b"PK\x01\x02")
    struct.pack_into("<I", content, central + 24, claimed)
    tracemalloc.start()
    try:
        assert_refused(bytes(content), "in the embedding is trunc" if claimed >= 128 else "'a.npy' in the embedding")
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_too_many_members_are_counted_before_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    content = archive({f"a{n}.npy": b"" for n in range(4)})
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert_refused(content, "the embedding is a zip archive of 4 files; expected at most 3")


def test_encrypted_members_are_refused() -> None:
    content = bytearray(npz(a=VALUES))
    content[6] |= 1
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    assert_refused(bytes(content), "'a.npy' in the embedding is encrypted; expected an archive without a password")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unusual_compression_is_refused(method: int) -> None:
    message = f"'a.npy' in the embedding is compressed by method {method}; expected stored or deflated"
    assert_refused(archive({"a.npy": npy(VALUES)}, method), message)


def test_two_members_of_one_name_are_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zip_file:
        zip_file.writestr("a.npy", npy(VALUES))
        with pytest.warns(UserWarning, match="Duplicate"):
            zip_file.writestr("a.npy", npy(VALUES))
    assert_refused(file.getvalue(), "the embedding is a zip archive with two files of one name; expected each once")


def test_member_names_with_folders_are_accepted_as_tensor_names() -> None:
    content = npz(**{"speech/0": VALUES, "../up": VALUES[:2]})
    assert_holds(read_embedding(content, tensor="speech/0"), VALUES)
    assert_holds(read_embedding(content, tensor="../up"), VALUES[:2])


def test_damaged_members_are_refused() -> None:
    content = bytearray(npz(a=np.zeros((1000, 10), np.float32)))
    content[20_000] ^= 1
    assert_refused(bytes(content), "'a.npy' in the embedding is truncated or damaged: Bad CRC-32")
    assert_refused(npz(a=VALUES)[:-30], "the embedding is a truncated or damaged zip archive: File is not a zip file")


def test_folders_are_not_listed_as_members(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as zip_file:
        zip_file.mkdir("folder")
        zip_file.writestr("folder/a.npy", npy(VALUES))
    content = Archive((tmp_path / "x.npz").read_bytes(), "x")
    assert content.names == ("folder/a.npy",) and "folder/" not in content
    assert content.read("folder/a.npy", 6) == b"\x93NUMPY" and content.size("folder/a.npy") == len(npy(VALUES))
    assert members((tmp_path / "x.npz").read_bytes())["folder/a.npy"] == content.read("folder/a.npy")


def test_archive_error_names_the_source_file() -> None:
    with pytest.raises(BadInput, match=r"talk\.npz is a truncated or damaged zip archive"):
        Archive(b"PK\x05\x06", "talk.npz")
