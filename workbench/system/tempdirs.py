"""Folders for the temporary files of a process and its children; they are removed with the process."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, cast

PREFIX = "workbench-"
OWNER = ".started"  # a file in such a folder: the id of the process that made it, and its mark
MAX_FOLDER_CHARACTERS = 40  # the path of a Unix socket in such a folder is limited to about a hundred
DISTINCT = 10  # characters; a name this long is unique in practice
SHARED_MEMORY = Path("/dev/shm")  # where Linux shows shared memory as files


def make_tempdir() -> Path:
    """Returns a new private folder with a short name."""
    place = tempfile.gettempdir()
    short = len(place) <= MAX_FOLDER_CHARACTERS or not Path("/tmp").is_dir()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place if short else "/tmp"))
    with contextlib.suppress(OSError):  # a full disk; the code that needs the folder reports it
        (folder / OWNER).write_text(f"{os.getpid()} {start_mark(os.getpid())}")
    return folder


def start_mark(pid: int) -> str:
    """Returns a text that distinguishes a process from others with the same id; empty if there is no such process.

    It is the same before and after a change of the system's clock, unlike the start time that psutil computes on Linux.
    """
    import psutil

    try:
        if psutil.LINUX:
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            return fields[19]  # clock ticks from the start of the system to that of the process
        return f"{psutil.Process(pid).create_time():.2f}"
    except (OSError, psutil.Error):
        return ""


@contextlib.contextmanager
def tempdir() -> Iterator[Path]:
    """Yields a new private folder and removes it at the end. If this process is killed, a later start removes it."""
    folder = make_tempdir()
    try:
        yield folder
    finally:
        remove_tempdir(folder)


def nameless_file() -> BinaryIO:
    """Returns a new file for reading and writing without a name; it is gone when the last process closes it."""
    return cast("BinaryIO", tempfile.TemporaryFile(prefix=PREFIX))


def remove_tempdir(folder: Path, killed: Collection[int] = ()) -> None:
    """Removes a folder, and the shared memory that its users left behind without a tracker.

    That is memory named after a file in the folder (vLLM's parallel workers name theirs so), and loky's semaphores
    named after a killed process.
    """
    with contextlib.suppress(OSError):
        patterns = [f"{path.name}-*" for path in folder.iterdir() if len(path.name) >= DISTINCT]
        for pattern in (*patterns, *(f"sem.loky-{pid}-*" for pid in killed)):
            for file in SHARED_MEMORY.glob(pattern):
                file.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
