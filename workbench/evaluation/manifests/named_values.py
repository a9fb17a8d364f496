"""Reads text files that have a name and its value on each line, as lists of many toolkits do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from workbench.core.errors import BadInput
from workbench.formats.text_files import lines_of

_GAP = re.compile("[ \t]+")
_AUDACITY_LABEL = re.compile(r"[0-9]+\.[0-9]+\t[0-9]+\.[0-9]+\t.*")
_HTK_LABEL = re.compile(r"([0-9]+) +([0-9]+) +.+")


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


def are_labels(lines: Sequence[str]) -> bool:
    """Returns whether each line begins with two times: seconds, as Audacity writes them, or HTK's whole numbers.

    Those of HTK count only if there are several lines and each begins where the one before it ends: a text may begin
    with two numbers.
    """
    filled = [line.strip() for line in lines if line.strip()]
    if filled and all(_AUDACITY_LABEL.fullmatch(line) for line in filled):
        return True
    labels = [_HTK_LABEL.fullmatch(line) for line in filled]
    return len(labels) > 1 and all(
        before is not None and after is not None and before[2] == after[1] for before, after in pairwise(labels)
    )
