"""Finds the files of a checkpoint that hold its weights, and refuses files that only stand in for weights."""

from __future__ import annotations

import contextlib
from pathlib import Path

from workbench.core.errors import BadInput

SUFFIXES = frozenset({".pt", ".tar", ".onnx", ".safetensors", ".gguf"})
_HEAD_BYTES = 512  # bytes that are read of a file to see what it is


def weight_files(checkpoint: Path) -> list[Path]:
    """Returns the files with weights in a checkpoint directory; for a checkpoint that is a file, this file."""
    if not checkpoint.is_dir():
        return [checkpoint] if checkpoint.is_file() else []
    # One level down, where language halves lie; these may be links, which a recursive glob does not follow.
    folders = [checkpoint, *(path for path in checkpoint.iterdir() if path.is_dir())]
    return [path for folder in folders for path in _contents(folder) if path.suffix in SUFFIXES and path.is_file()]


def check_downloaded(path: Path, where: str) -> None:
    """Raises `BadInput` for a small text that stands in for the weights: a Git LFS pointer, or a page of a web site.

    It accepts an unreadable file: the code that opens the file raises the error for it.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    except (OSError, ValueError):
        return
    if begin.startswith(b"version https://git-lfs.github.com/spec/"):
        raise BadInput(f"{where} is a Git LFS pointer, not the weights; run git lfs pull in its repository")
    if begin.startswith((b"<!doctype html", b"<html")):
        raise BadInput(f"{where} is an HTML page, not the weights; download the file itself")


def file_bytes(checkpoint: Path) -> int:
    """Returns the size in bytes of all files with weights of a checkpoint."""
    return sum(path.stat().st_size for path in weight_files(checkpoint))


def _contents(folder: Path) -> list[Path]:
    """Returns the content of a folder; nothing for an unreadable folder, because its reader raises the error."""
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []
