"""Paths, bytes and base64 are read as the bytes of a file, with a size limit checked before reading."""

from __future__ import annotations

import base64
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.embeddings import payload
from workbench.embeddings.payload import as_base64, read_payload


@given(st.binary(max_size=200))
def test_every_payload_form_gives_the_same_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("p") / "any name"
    path.write_bytes(content)
    text = as_base64(content)
    in_lines = base64.encodebytes(content).decode().replace("\n", "\r\n")
    for source in (
        content,
        bytearray(content),
        memoryview(content),
        path,
        text,
        in_lines,
        f"data:application/octet-stream;base64,{text}",
        f"data:;base64,{in_lines}",
        f"\n DATA:application/x-npy;name=a.npy;BASE64,{text}\n",
    ):
        assert read_payload(source, "x") == content


def assert_refused(source: object, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_payload(source, "x.npy")  # type: ignore[arg-type]
    assert message in str(caught.value) and "expected" in str(caught.value) and "\n" not in str(caught.value)


def test_invalid_base64_is_refused() -> None:
    assert_refused("AAAA?AAA", "x.npy is not base64: character 5 is '?'; expected letters, digits, + and /")
    assert_refused("AAA", "x.npy is not whole base64: it has 3 characters, which is not a multiple of 4")
    assert_refused("/tmp/speech", "(base64 is a file's content; in Python, a Path names a file)")
    assert_refused("AA==AAAA", "x.npy is not base64: ")
    assert_refused("ÄÖÜ!", "x.npy is not base64: character 1 is 'Ä'")
    assert_refused("AAA\ud800", "x.npy is not base64: character 4 is '\\ud800'")
    assert_refused("data:text/plain,AAAA", "x.npy begins like a data URL, 'data:text/plain,AAAA'; expected base64")
    assert_refused("data:AAAA", "x.npy begins like a data URL")
    assert_refused(3.5, "x.npy is a float; expected a path, bytes, or base64 text")
    assert_refused(None, "x.npy is a NoneType")


def test_a_text_is_never_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_bytes(b"\x93NUMPY")
    assert_refused(str(tmp_path / "secret.npy"), "in Python, a Path names a file")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "AAAA").write_bytes(b"secret")
    assert read_payload("AAAA", "x") == bytes(3)


def test_path_that_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path, "x.npy cannot be read: it is a folder; expected a .npy, .npz, .pt or .safetensors file")
    assert_refused(tmp_path / "none", "x.npy cannot be read: there is no such file; expected")
    os.mkfifo(tmp_path / "pipe")
    assert_refused(tmp_path / "pipe", "x.npy cannot be read: it is not a regular file")


def test_gigabyte_payload_is_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # takes no space on the disk
    text = "A" * 6_000_000
    tracemalloc.start()
    try:
        assert_refused(path, "x.npy has 1.1 GB; expected at most 256 MB")
        monkeypatch.setattr(payload, "LIMIT", 4_000_000)
        assert_refused(text, "x.npy has 4.4 MB; expected at most 4.0 MB")
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_size_limit_applies_to_every_payload_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "LIMIT", 3000)
    for count, fits in ((3000, True), (3001, False)):
        (tmp_path / "file").write_bytes(bytes(count))
        for source in (bytes(count), tmp_path / "file", as_base64(bytes(count))):
            if fits:
                assert len(read_payload(source, "x")) == count
            else:
                assert_refused(source, "x.npy has 3 kB; expected at most 3 kB")
