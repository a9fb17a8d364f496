"""What a list of transcripts is: a file whose lines name recordings, in any folder of the corpus, and their texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Line = tuple[int, str, str | None, str | None]
"""The number of a line, the name of a recording without folders, its text and its speaker.

A line without a text cannot be used.
"""


@dataclass(frozen=True)
class TranscriptList:
    """One form of such a list."""

    name: re.Pattern[str]  # of the whole path of such a file
    lines: Callable[[bytes, str], Iterator[Line]]
    """Reads the content of a file of that name; raises `BadInput` if it is not UTF-8."""
    is_one: Callable[[bytes], bool] | None = None
    """Returns whether a file of that name is such a list, by its content; None if the name is enough."""


def in_any_folder(name: str) -> re.Pattern[str]:
    """Returns a pattern for the paths of files with a name, itself a pattern."""
    return re.compile(rf"(?:.*/)?{name}", re.DOTALL)
