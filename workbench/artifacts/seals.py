"""Whether a file that was made and kept is still what was written: its size, and a digest of its beginning.

That takes milliseconds, whatever the size, and tells a file that was cut short, emptied or written over from a whole
one; a changed byte far inside the weights it does not see. This file knows no format.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

HEAD_BYTES = 32 << 20  # of what stands before the weights, tokenizers included, seldom more


def seal(path: Path) -> list[Any]:
    """The size of a file and the digest of its first `HEAD_BYTES`, as JSON has them; raises `OSError`."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return [size, hashlib.sha256(file.read(HEAD_BYTES)).hexdigest()]


def unbroken(path: Path, sealed: Any) -> bool:
    """Whether the file is as it was when it was sealed; not where it was never sealed, or is not there."""
    try:
        return bool(sealed) and path.stat().st_size == sealed[0] and seal(path) == sealed
    except (OSError, TypeError, LookupError):
        return False
