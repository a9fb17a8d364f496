"""Atomic writes: unusable output paths are refused before the work, and existing files are not damaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from workbench.core.errors import BadInput, Unavailable
from workbench.system.atomic_files import check_not_read, check_place, write_whole


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (pipe, "is a device or a pipe"),
        (lambda folder: Path("/dev/null"), "is a device or a pipe"),  # root would put a file in its place
        (lambda folder: Path("/dev/new"), "is a device or a pipe"),
        (lambda folder: folder, "is a directory"),
        (lambda folder: folder / "none" / "a.gguf", "there is no folder"),
    ],
)
def test_unusable_output_path_is_refused(make, reason: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=reason):
        check_place(make(tmp_path))


def test_new_existing_and_linked_output_paths_are_accepted(tmp_path: Path) -> None:
    check_place(tmp_path / "new.gguf")
    (tmp_path / "old.gguf").write_bytes(b"old")
    (tmp_path / "link.gguf").symlink_to("old.gguf")
    check_place(tmp_path / "old.gguf")
    check_place(tmp_path / "link.gguf")
    assert (tmp_path / "old.gguf").read_bytes() == b"old"


def test_output_path_that_is_also_an_input_is_refused(tmp_path: Path) -> None:
    talk = tmp_path / "talk.wav"
    talk.write_bytes(b"sound")
    (tmp_path / "link.html").symlink_to("talk.wav")
    for out in (talk, tmp_path / "link.html"):
        with pytest.raises(BadInput, match=r"^--report names .*, which the same command uses for something else"):
            check_not_read("--report", out, ["Count to three.", "a" * 5000, "\0", str(talk)])
    check_not_read("--report", tmp_path / "new.html", [str(talk), "new.html\n"])


def test_failed_write_leaves_the_existing_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, link = tmp_path / "report.html", tmp_path / "link.html"
    link.symlink_to(out)
    write_whole(link, b"first")
    assert out.read_bytes() == b"first" and link.is_symlink()

    def full(self: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(Unavailable, match="the disk is full"):
            write_whole(out, b"second")
    assert out.read_bytes() == b"first" and sorted(tmp_path.iterdir()) == [link, out]
    write_whole(Path("/dev/null"), b"third")
    assert Path("/dev/null").is_char_device()


def test_read_only_disk_raises_an_error_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)  # such a disk refuses this for files that are not there, too
    with pytest.raises(BadInput, match=r"report\.html could not be written: Read-only file system"):
        write_whole(tmp_path / "report.html", b"new")
