"""Folders for the temporary files of a process and of what it starts, which go with it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, cast

PREFIX = "workbench-"
LONGEST_PLACE = 40  # characters; the address of a Unix socket in such a folder may have about a hundred
DISTINCT = 10  # characters of a name that nobody else has by chance
SHARED_MEMORY = Path("/dev/shm")  # where Linux shows it as files


def make_scratch() -> Path:
    """A new folder, private, with a short name."""
    place = tempfile.gettempdir()
    short = len(place) <= LONGEST_PLACE or not Path("/tmp").is_dir()
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=place if short else "/tmp"))


def nameless_file() -> BinaryIO:
    """A new file to write and read that is in no folder: it is gone with the last who has it open, even one killed."""
    return cast("BinaryIO", tempfile.TemporaryFile(prefix=PREFIX))


def remove_scratch(folder: Path, killed: Collection[int] = ()) -> None:
    """Removes a folder, and what those who used it have left of shared memory without a tracker's care.

    That is memory named after a file in the folder, as that of vLLM's parallel workers is, and semaphores of loky named
    after a process that was killed.
    """
    with contextlib.suppress(OSError):
        patterns = [f"{path.name}-*" for path in folder.iterdir() if len(path.name) >= DISTINCT]
        for pattern in (*patterns, *(f"sem.loky-{pid}-*" for pid in killed)):
            for left in SHARED_MEMORY.glob(pattern):
                left.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
