"""Which files of a checkpoint hold its weights, and which only stand where weights should be."""

from __future__ import annotations

import contextlib
from pathlib import Path

from workbench.core.errors import BadInput

SUFFIXES = frozenset({".pt", ".tar", ".onnx", ".safetensors", ".gguf"})
_BEGIN = 512  # bytes that are read of a file to see what it is


def weight_files(checkpoint: Path) -> list[Path]:
    """Returns the files with weights of a checkpoint directory, or the file that the checkpoint is."""
    if not checkpoint.is_dir():
        return [checkpoint] if checkpoint.is_file() else []
    # One level down, where language halves lie; these may be links, which a recursive glob does not follow.
    folders = [checkpoint, *(path for path in checkpoint.iterdir() if path.is_dir())]
    return [path for folder in folders for path in _inside(folder) if path.suffix in SUFFIXES and path.is_file()]


def check_downloaded(path: Path, where: str) -> None:
    """Raises `BadInput` for a small text that stands in for the weights: a Git LFS pointer, or a page of a web site.

    It says nothing of a file that cannot be read: whoever opens it does.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(_BEGIN).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    except (OSError, ValueError):
        return
    if begin.startswith(b"version https://git-lfs.github.com/spec/"):
        raise BadInput(f"{where} is a Git LFS pointer, not the weights; run git lfs pull in its repository")
    if begin.startswith((b"<!doctype html", b"<html")):
        raise BadInput(f"{where} is an HTML page, not the weights; download the file itself")


def file_bytes(checkpoint: Path) -> int:
    """Returns the size of all these files."""
    return sum(path.stat().st_size for path in weight_files(checkpoint))


def _inside(folder: Path) -> list[Path]:
    """Returns what is in a folder; nothing of one that may not be read, since whoever needs it says so."""
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []
