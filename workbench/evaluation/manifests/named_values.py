"""Reads text files that have a name and its value on each line, as lists of many toolkits do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workbench.core.errors import BadInput
from workbench.formats.text_files import lines_of

_GAP = re.compile("[ \t]+")


def decoded_lines(content: bytes, name: str) -> list[str]:
    """Returns the lines of a file in UTF-8; raises `BadInput` with its name for another one."""
    try:
        return lines_of(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadInput(f"{name} is not written in UTF-8 (byte {error.start})") from error


def named_values(content: bytes, name: str) -> Iterator[tuple[int, str, str]]:
    """Yields the number of each line with text, its first field, which spaces or tabs end, and the rest.

    Raises `BadInput` as `decoded_lines` does.
    """
    for number, line in enumerate(decoded_lines(content, name), 1):
        if line.strip():
            first, *rest = _GAP.split(line.strip(), maxsplit=1)
            yield number, first, rest[0] if rest else ""
