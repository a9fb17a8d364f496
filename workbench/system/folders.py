"""Looks for files: all in a folder at every depth, one by its path, or those that only a system uses."""

from __future__ import annotations

import os
from pathlib import Path, PurePath


def files_below(folder: Path) -> list[Path]:
    """Returns the files in the folder and in all folders below it, sorted by path.

    It follows links to files and to folders, as the folders of a corpus are often links. It does not follow a link to
    a folder above it, which would never end.
    """
    found: list[Path] = []
    real = {folder: folder.resolve()}
    for name, folders, files in os.walk(folder, followlinks=True):
        place = Path(name)
        ancestors = {real[each] for each in (place, *place.parents) if each in real}
        real |= {place / each: (place / each).resolve() for each in folders}
        folders[:] = [each for each in folders if real[place / each] not in ancestors]
        found += [path for path in map(place.joinpath, files) if path.is_file()]
    return sorted(found)


def is_file(path: Path) -> bool:
    """Returns whether a file is there; False for a path that the system refuses, such as one with a name too long."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_system_file(name: str) -> bool:
    """Returns whether a file, by its path, is one that macOS adds beside those of its user, such as `._a.wav`."""
    return any(part in ("__MACOSX", ".DS_Store") or part.startswith("._") for part in PurePath(name).parts)
