"""Reads the names of the files in a zip archive, whichever program wrote it."""

from __future__ import annotations

import contextlib
import zipfile

_IS_UTF8 = 0x800  # the flag of a name that is marked as UTF-8
_WINDOWS = 0  # the number of the system that wrote an archive


def named_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Returns the files in an archive, without its folders, and gives each its right name.

    By the standard, an unmarked name is in code page 437. But `zip` on Linux and the Finder of macOS write UTF-8
    without the mark, and old programs on Windows write `\\` between folders.
    """
    for member in archive.infolist():
        member.filename = _name_of(member)
    return [member for member in archive.infolist() if not member.is_dir()]


def _name_of(member: zipfile.ZipInfo) -> str:
    name = member.filename
    if not member.flag_bits & _IS_UTF8:
        # Other names are in code page 437, or in that of another country, which the archive does not name.
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/") if member.create_system == _WINDOWS else name
