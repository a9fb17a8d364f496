"""Seals: the size and a digest of the beginning of a stored file, to detect later changes.

A check takes milliseconds for any size. It detects a file that was cut short, emptied or overwritten; it does not
detect a changed byte far inside the weights. This file knows no format.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

HEAD_BYTES = 32 << 20  # the part before the weights, tokenizers included, is rarely larger


def seal(path: Path) -> list[Any]:
    """Returns the size of a file and the digest of its first `HEAD_BYTES`, as JSON values; raises `OSError`."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return [size, hashlib.sha256(file.read(HEAD_BYTES)).hexdigest()]


def unbroken(path: Path, sealed: Any) -> bool:
    """Returns whether the file is unchanged since it was sealed; False without a seal or without the file."""
    try:
        return bool(sealed) and path.stat().st_size == sealed[0] and seal(path) == sealed
    except (OSError, TypeError, LookupError):
        return False
