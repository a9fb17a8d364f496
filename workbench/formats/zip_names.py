"""Reads the names of the files in a zip archive, whichever program wrote it."""

from __future__ import annotations

import contextlib
import zipfile

_IS_UTF8 = 0x800  # the flag of a name that is marked as UTF-8
_WINDOWS = 0  # the number of the system that wrote an archive


def named_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Returns the files in an archive, without its folders, and gives each its right name.

    By the standard, an unmarked name is in code page 437. But `zip` on Linux and the Finder of macOS write UTF-8
    without the mark, and Windows in China writes GBK. Old programs on Windows write `\\` between folders.
    """
    for member in archive.infolist():
        member.filename = _name_of(member)
    return [member for member in archive.infolist() if not member.is_dir()]


def _name_of(member: zipfile.ZipInfo) -> str:
    name = member.orig_filename.partition("\0")[0]
    if not member.flag_bits & _IS_UTF8:
        name = _decoded(name)
    return name.replace("\\", "/") if member.create_system == _WINDOWS else name


def _decoded(name: str) -> str:
    """Returns a name that was decoded as code page 437 in the encoding that its bytes fit.

    The characters of GB 2312 are in code page 437 pairs of lines and Greek letters, which no name has.
    """
    content = name.encode("cp437")
    with contextlib.suppress(UnicodeDecodeError):
        return content.decode("utf-8")
    with contextlib.suppress(UnicodeDecodeError):
        chinese = content.decode("gb2312")
        if any("\u4e00" <= char <= "\u9fff" for char in chinese):
            return chinese
    return name
