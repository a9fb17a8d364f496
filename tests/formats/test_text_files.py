"""Reading text files of users: the accepted content, and the error for each kind of refused file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.core.errors import BadInput
from workbench.formats.text_files import check_stored, read_text


def test_text_is_read_without_byte_order_mark_and_with_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"\xef\xbb\xbfa\r\n\xe4\xbd\xa0\n")
    assert read_text(tmp_path / "it") == "a\r\n你\n"
    check_stored(tmp_path / "it")
    check_stored(tmp_path / "none")
    check_stored(tmp_path / ("a" * 5000))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\xff", "it is not UTF-8 text at byte 1"),
        ("a".encode("utf-16"), "it is not UTF-8 text at byte 3, which is 0, as in UTF-16 text or a binary file"),
        ("ab".encode("utf-32-le"), "it is not UTF-8 text at byte 1, which is 0"),
        (b"a" * 11, "it has more than 10 bytes"),
    ],
)
def test_invalid_or_too_large_text_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_text(tmp_path / "it", largest=10)


def test_path_that_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in {
        tmp_path: "Is a directory",
        tmp_path / "none": "No such file",
        tmp_path / ("a" * 5000): "File name too long",
        tmp_path / "a\0b": "null",
        tmp_path / "pipe": "a pipe or a device; expected a file",
        Path("/dev/zero"): "a pipe or a device; expected a file",
    }.items():
        with pytest.raises(BadInput, match=message):
            read_text(path)
