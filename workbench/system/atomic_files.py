"""Writes files and directories atomically: checks the place before the work, writes beside it, renames at the end.

This file knows no format.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from workbench.core.errors import BadInput, DiskFull
from workbench.core.paths import is_directory

ROOM = 1 << 20  # bytes that must stay free on the disk besides the file
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DEVICES = Path("/dev")
UNFINISHED = ".part"  # suffix of a file that is still being written


def check_place(out: Path) -> None:
    """Raises `BadInput` if no file can be made under this name. Callers check before they start the work."""
    with explained_file_errors(out):
        if not out.parent.is_dir():
            raise BadInput(f"there is no folder {out.parent}; expected the name of a file in a folder that exists")
        if is_directory(out) or not out.name:
            raise BadInput(f"{out} is a directory; expected the name of a file")
        if is_device(out):
            raise BadInput(f"{out} is a device or a pipe; expected the name of a file")
        if not os.access(out.parent, os.W_OK | os.X_OK):
            raise BadInput(f"the folder {out.parent} cannot be written to; expected one that can")


def check_not_read(flag: str, out: Path, read: Iterable[str | Path]) -> None:
    """Raises `BadInput` if the file that `flag` names is one of those that the same command reads or writes besides.

    Args:
        read: paths, which need not exist; texts that are not paths are skipped.
    """
    for each in read:
        with contextlib.suppress(OSError, ValueError):
            if Path(each) == out or (out.exists() and out.samefile(each)):
                raise BadInput(f"{flag} names {out}, which the same command uses for something else; expected another")


def check_outputs(outputs: Mapping[str, Path | None], read: Iterable[str | Path]) -> None:
    """Raises `BadInput` as `check_not_read`, also for two flags that name one file.

    Args:
        outputs: the file of each flag; None if the flag is not given.
        read: as for `check_not_read`.
    """
    read_paths = list(read)
    for flag, out in outputs.items():
        if out is not None:
            check_not_read(flag, out, read_paths)
            read_paths.append(out)


def is_device(path: Path) -> bool:
    """Returns whether a file under this name would take the place of a device or a pipe.

    A rename puts it there for every program of the machine, if root does it.
    """
    return (path.exists() and not path.is_file() and not path.is_dir()) or path.parent.resolve() == _DEVICES


def check_directory(out: Path) -> None:
    """Raises `BadInput` if no directory can be made under this name. Callers check before they start the work."""
    with explained_file_errors(out):
        if not out.name or out.name in (".", ".."):
            raise BadInput(f"{out} is not the name of a directory; expected a new one in a folder that exists")
        if out.is_dir() and any(out.iterdir()):
            raise BadInput(f"{out} is a directory with files in it; expected a new one, or an empty one")
        if out.exists() and not out.is_dir():
            raise BadInput(f"{out} is a file; expected the name of a new directory")
        if not out.parent.is_dir():
            raise BadInput(f"there is no folder {out.parent}; expected the name of a directory in a folder that exists")
        if not os.access(out.parent, os.W_OK | os.X_OK):
            raise BadInput(f"the folder {out.parent} cannot be written to; expected one that can")


@contextlib.contextmanager
def explained_file_errors(path: Path) -> Iterator[None]:
    """Turns an error of the file system inside the block into `BadInput` or `DiskFull` with one plain sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise DiskFull(f"{path} could not be written: the disk is full ({error.strerror}); make room") from error
        raise BadInput(f"{path} could not be written: {error.strerror or error}") from error


@contextlib.contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """Yields a new file beside `path`. Removes it at the end, unless the caller has renamed it."""
    file = path.with_name(f".workbench-{secrets.token_hex(6)}{UNFINISHED}")
    with explained_file_errors(path):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # a disk that has become read-only; the error in the block says so
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a new file, which takes the place of `path` at the end of the block. If the block fails, nothing changes.

    A link stays a link. Raises `BadInput` or `DiskFull` as `explained_file_errors` does, for making and moving the
    file.
    """
    place = path.resolve()
    with temporary(place) as new:
        yield new
        with explained_file_errors(path):
            new.replace(place)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file. If that fails, an earlier file of that name stays as it was.

    A device or a pipe is written to. Raises `BadInput` or `DiskFull` as `explained_file_errors` does.
    """
    if is_device(path):
        with explained_file_errors(path):
            path.write_bytes(content)
        return
    with replacing(path) as new, explained_file_errors(path):
        new.write_bytes(content)


def follow_umask(folder: Path) -> None:
    """Gives .safetensors files of a folder the permissions of new files; their package writes for the owner alone."""
    for path in folder.glob("*.safetensors"):
        with temporary(path) as new:
            path.chmod(new.stat().st_mode & 0o777)


def check_room(out: Path, needed_bytes: int, advice: str = "make room there, or choose a smaller quantization") -> None:
    """Raises `DiskFull` with the advice if the disk of the file's folder has too little space for so many bytes."""
    free = shutil.disk_usage(out.parent).free
    if free < needed_bytes + ROOM:
        raise DiskFull(
            f"{out.parent} has {free / 1e6:.0f} MB left and {out.name} needs {needed_bytes / 1e6:.0f} MB; {advice}"
        )
