"""Where a file or a directory is put: checked before the work, made beside its place, there whole or not at all.

This file knows no format.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from workbench.core.errors import BadInput, Unavailable

ROOM = 1 << 20  # bytes that a disk should have left besides the file
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
UNFINISHED = ".part"  # what the names of files end in while they are written


def check_place(out: Path) -> None:
    """Raises `BadInput` where no file can be made under this name, before any work is done."""
    with told(out):
        if not out.parent.is_dir():
            raise BadInput(f"there is no folder {out.parent}; expected the name of a file in a folder that exists")
        if out.is_dir() or not out.name:
            raise BadInput(f"{out} is a directory; expected the name of a file")
        if not os.access(out.parent, os.W_OK | os.X_OK):
            raise BadInput(f"the folder {out.parent} cannot be written to; expected one that can")


def check_directory(out: Path) -> None:
    """Raises `BadInput` where no directory can be made under this name, before any work is done."""
    with told(out):
        if not out.name or out.name in (".", ".."):
            raise BadInput(f"{out} is no name of a directory; expected a new one in a folder that exists")
        if out.is_dir() and any(out.iterdir()):
            raise BadInput(f"{out} is a directory with files in it; expected a new one, or an empty one")
        if out.exists() and not out.is_dir():
            raise BadInput(f"{out} is a file; expected the name of a new directory")
        if not out.parent.is_dir():
            raise BadInput(f"there is no folder {out.parent}; expected the name of a directory in a folder that exists")
        if not os.access(out.parent, os.W_OK | os.X_OK):
            raise BadInput(f"the folder {out.parent} cannot be written to; expected one that can")


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Makes what the file system says a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise Unavailable(f"{path} could not be written: the disk is full ({error.strerror}); make room") from error
        raise BadInput(f"{path} could not be written: {error.strerror or error}") from error


@contextlib.contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """A file beside `path` that is removed at the end, unless it has been given another name."""
    file = path.with_name(f".workbench-{secrets.token_hex(6)}{UNFINISHED}")
    try:
        with told(path):
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield file
    finally:
        file.unlink(missing_ok=True)


def check_room(out: Path, needed: int, advice: str = "make room there, or choose a smaller quantization") -> None:
    """Raises `Unavailable` with the advice where the disk of a file's folder has less than so many bytes left."""
    left = shutil.disk_usage(out.parent).free
    if left < needed + ROOM:
        raise Unavailable(
            f"{out.parent} has {left / 1e6:.0f} MB left and {out.name} needs {needed / 1e6:.0f} MB; {advice}"
        )
