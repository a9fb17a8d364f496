"""Reads the names of the files in a zip archive, whichever program wrote it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence

_IS_UTF8 = 0x800  # the flag of a name that is marked as UTF-8
_WINDOWS = 0  # the number of the system that wrote an archive
_CHINESE = re.compile("[\u4e00-\u9fff]")
_JAPANESE = re.compile("[\u3005\u3040-\u30ff\u4e00-\u9fff]")  # also kana, and the mark of repetition
_JAPANESE_SIGNS = re.compile("[\u3000-\u303f\uff00-\uffef\u2010-\u2026\u00d7]")  # wide letters, brackets and dashes
_LINES_AND_GREEK = re.compile("[\u2200-\u25ff\u0370-\u03ff\xac\xbc\xbd]")  # of code page 437; no name has them


def named_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Returns the files in an archive, without its folders, and gives each its right name.

    By the standard, an unmarked name is in code page 437. But `zip` on Linux and the Finder of macOS write UTF-8
    without the mark, and Windows in China and Japan writes GBK and Shift-JIS, in all names of an archive alike. Old
    programs on Windows write `\\` between folders.
    """
    members = archive.infolist()
    encoding = _encoding_of([_stored(each) for each in members if not each.flag_bits & _IS_UTF8])
    for member in members:
        member.filename = _name_of(member, encoding)
    return [member for member in members if not member.is_dir()]


def _stored(member: zipfile.ZipInfo) -> str:
    """Returns a name as zipfile reads it, up to a null character."""
    return member.orig_filename.partition("\0")[0]


def _name_of(member: zipfile.ZipInfo, encoding: str) -> str:
    name = _stored(member)
    if not member.flag_bits & _IS_UTF8:
        name = _decoded(name, "utf-8") or _decoded(name, encoding) or name
    return name.replace("\\", "/") if member.create_system == _WINDOWS else name


def _decoded(name: str, encoding: str) -> str:
    """Returns a name that was decoded as code page 437 in another encoding; an empty text if it is not in that one."""
    try:
        return name.encode("cp437").decode(encoding)
    except UnicodeDecodeError:
        return ""


def _encoding_of(names: Sequence[str]) -> str:
    """Returns the encoding of the unmarked names of an archive, among those that are not UTF-8."""
    foreign = [name for name in names if not name.isascii() and not _decoded(name, "utf-8")]
    for encoding, fits in (("gb2312", _is_chinese), ("cp932", _is_japanese), ("gbk", _is_chinese)):
        texts = [_decoded(name, encoding) for name in foreign]
        if all(texts) and any(map(fits, foreign, texts)):
            return encoding
    return "cp437"


def _is_chinese(name: str, text: str) -> bool:
    """Returns whether a name is Chinese text.

    The characters of GB 2312 are in code page 437 pairs of lines and Greek letters, which no name has.
    """
    characters = _CHINESE.findall(text)
    common = "".join(characters).encode("gb2312", "ignore")
    return len(common) > len(characters)  # two bytes for each of more than half of them


def _is_japanese(name: str, text: str) -> bool:
    """Returns whether a name is Japanese text, and not that of a European language in code page 437.

    In that, an accented letter and the next letter together may be a character of Shift-JIS, as in `schön`. But two of
    these seldom follow each other, and lines and Greek letters are in no name.
    """
    foreign = [char for char in text if not char.isascii()]
    if not all(_JAPANESE.match(char) or _JAPANESE_SIGNS.match(char) for char in foreign):
        return False
    adjacent = re.search(f"{_JAPANESE.pattern}{{2}}", text) is not None
    return adjacent or (_LINES_AND_GREEK.search(name) is not None and _JAPANESE.search(text) is not None)
