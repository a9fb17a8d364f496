"""Which files of a checkpoint hold its weights."""

from __future__ import annotations

import contextlib
from pathlib import Path

SUFFIXES = frozenset({".pt", ".tar", ".onnx", ".safetensors", ".gguf"})


def weight_files(checkpoint: Path) -> list[Path]:
    """Returns the files with weights of a checkpoint directory, or the file that the checkpoint is."""
    if not checkpoint.is_dir():
        return [checkpoint] if checkpoint.is_file() else []
    # One level down, where language halves lie; these may be links, which a recursive glob does not follow.
    folders = [checkpoint, *(path for path in checkpoint.iterdir() if path.is_dir())]
    return [path for folder in folders for path in _inside(folder) if path.suffix in SUFFIXES and path.is_file()]


def file_bytes(checkpoint: Path) -> int:
    """Returns the size of all these files."""
    return sum(path.stat().st_size for path in weight_files(checkpoint))


def _inside(folder: Path) -> list[Path]:
    """Returns what is in a folder; nothing of one that may not be read, since whoever needs it says so."""
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []
