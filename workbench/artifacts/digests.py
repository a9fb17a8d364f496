"""The files of a checkpoint directory: a listing, and a digest of their contents. This file knows no format."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.system.atomic_files import UNFINISHED, explained_file_errors

BLOCK = 1 << 24  # bytes read in one go
DESCRIPTIONS = {".md", ".png", ".jpg"}  # suffixes of files that only people read


def listed(directory: Path) -> list[tuple[str, int, int]]:
    """Returns name, size in bytes and time of the last change of each file in a directory and its subdirectories.

    Raises `BadInput` if the directory cannot be read.
    """
    try:
        inside = [path for path in directory.iterdir() if not path.name.startswith(".")]
        files = [path for path in inside if path.is_file()]
        files += [path for folder in inside if folder.is_dir() for path in folder.iterdir() if path.is_file()]
        stats = [(path.relative_to(directory).as_posix(), path.stat()) for path in files]
    except OSError as error:
        raise BadInput(f"the checkpoint directory {directory} cannot be read: {error.strerror}") from error
    return sorted((name, stat.st_size, _changed(stat)) for name, stat in stats)


def _changed(stat: os.stat_result) -> int:
    """Returns the time of a file's last change in ns.

    Archives, package managers and rsync set a file's own time: two versions of a checkpoint may have the same one. The
    time of the entry on the disk cannot be set.
    """
    return max(stat.st_mtime_ns, stat.st_ctime_ns)


class Digests:
    """Digests of files. Each is computed once, as long as the file's size and time of change stay the same.

    Args:
        memory: the file that stores them for other processes; if it is damaged, they are computed again.
    """

    def __init__(self, memory: Path):
        self.memory = memory

    def of(self, directory: Path, on_read: Callable[[float], None] | None = None) -> str:
        """Returns the digest of the names and contents of a directory's files, independent of the directory's path.

        Args:
            on_read: called with the fraction read so far; an exception from it ends the work.

        Raises `BadInput` if a file cannot be read.
        """
        return self._of(
            directory, [each for each in listed(directory) if Path(each[0]).suffix not in DESCRIPTIONS], on_read
        )

    def of_file(self, path: Path, on_read: Callable[[float], None] | None = None) -> str:
        """Returns the digest of one file's contents, independent of its name; arguments and errors as for `of`."""
        try:
            stat = path.stat()
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from error
        return self._of(path, [("", stat.st_size, _changed(stat))], on_read)

    def _of(self, directory: Path, files: list[tuple[str, int, int]], on_read: Callable[[float], None] | None) -> str:
        digests = self._read()
        found: dict[str, list[Any]] = {}
        missing = [each for each in files if digests.get(str(directory / each[0]), [])[:2] != [each[1], each[2]]]
        total, hashed = sum(size for _, size, _ in missing), 0

        def read(count: int) -> None:
            nonlocal hashed
            hashed += count
            if on_read is not None:
                on_read(hashed / max(total, 1))

        for name, size, changed in missing:
            found[str(directory / name)] = [size, changed, _digest(directory / name, read)]
        if found:
            self._remember(found)
        digests |= found
        contents = [[name, digests[str(directory / name)][2]] for name, _, _ in files]
        return hashlib.sha256(json.dumps(contents).encode()).hexdigest()

    def _read(self) -> dict[str, list[Any]]:
        try:
            content = json.loads(self.memory.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(content, dict):
            return {}
        return {name: each for name, each in content.items() if isinstance(each, list) and len(each) == 3}

    def _remember(self, found: dict[str, list[Any]]) -> None:
        with explained_file_errors(self.memory):
            self.memory.parent.mkdir(parents=True, exist_ok=True)
            # Read again: another process may have added to it meanwhile. Lost digests are computed again.
            digests = {name: each for name, each in self._read().items() if Path(name).is_file()}
            temporary = self.memory.with_name(f".{self.memory.name}.{secrets.token_hex(6)}{UNFINISHED}")
            temporary.write_text(json.dumps(digests | found), encoding="utf-8")
            temporary.replace(self.memory)


def _digest(path: Path, read: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                read(len(block))
    except OSError as error:
        raise BadInput(f"{path.parent.name}/{path.name} cannot be read: {error.strerror}") from error
    return digest.hexdigest()
