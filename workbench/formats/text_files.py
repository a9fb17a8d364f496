"""Reads users' text files whole. It knows nothing about their content."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from workbench.core.errors import BadInput, message_of

MAX_TEXT_BYTES = 1 << 30
BLANKS = " \t\n\r\v\f"
"""The white space that separates words and tokens. Other spaces of Unicode may be part of one, as in ARPA files."""

_WORD = re.compile(f"[^{BLANKS}]+")


def read_text(path: Path, largest: int = MAX_TEXT_BYTES) -> str:
    """Returns the text of a UTF-8 file, without a byte order mark; lines end as they do in the file.

    Raises `BadInput` with a reason, such as "it is not UTF-8 text at byte 3", for a file that is missing or has more
    than `largest` bytes, for a pipe or a device, and for a NUL byte, as text in UTF-16 and binary files have.
    """
    try:
        check_stored(path)
        with path.open("rb") as file:
            content = file.read(largest + 1)
    except (OSError, ValueError) as error:
        raise BadInput(getattr(error, "strerror", None) or message_of(error)) from error
    if len(content) > largest:
        raise BadInput(f"it has more than {largest} bytes")
    if b"\0" in content:
        raise BadInput(
            f"it is not UTF-8 text at byte {content.index(0)}, which is 0, as in UTF-16 text or a binary file"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"it is not UTF-8 text at byte {error.start}") from error


def check_stored(path: Path) -> None:
    """Raises `BadInput` for a named pipe, a socket or a device, which may never end.

    It accepts a missing file and an impossible name: the code that opens the file raises the error for these.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BadInput("it is a pipe or a device; expected a file")


def check_named(path: Path, where: str) -> None:
    """Raises `BadInput` as `check_stored` does, with the name of the file as the user knows it."""
    try:
        check_stored(path)
    except BadInput as error:
        raise BadInput(f"{where} cannot be read: {error}") from error


def words_of(line: str) -> list[str]:
    """Returns the words of a line, which `BLANKS` separate."""
    return _WORD.findall(line)


def lines_of(text: str) -> list[str]:
    """Returns the lines of a text, which may end as on any system.

    `str.splitlines` also ends a line at separators of Unicode, which can stand inside a word or a sentence.
    """
    return re.split(r"\r\n|\r|\n", text)
