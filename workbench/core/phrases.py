"""Counts, lists and names of files in sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_NAME = re.compile(r"\w+[._]\w")  # what begins with a name such as `frontend.features`


def counted(number: int, noun: str) -> str:
    """Returns a count with its noun, such as `1 stage` or `3 stages`; the plural of the noun ends in s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def numbers_below(count: int) -> str:
    """Returns the numbers that count so many things from 0: `0`, or a range such as `0 to 3`."""
    return "0" if count == 1 else f"0 to {count - 1}"


def dimensions(shape: Sequence[int]) -> str:
    """Returns a shape such as `740×512`; empty for a scalar's."""
    return "×".join(map(str, shape))


def as_sentence(clause: str) -> str:
    """Returns a clause with a capital letter and a full stop; a name such as `llm.norm` at its beginning is kept."""
    return f"{clause}." if _NAME.match(clause) else f"{clause[:1].upper()}{clause[1:]}."


def enumerated(parts: Sequence[str]) -> str:
    """Returns at least one part as a list in words, such as `a`, `a and b` or `a, b and c`."""
    *earlier, last = parts
    return f"{', '.join(earlier)} and {last}" if earlier else last


def name_in_folder(path: Path) -> str:
    """Returns a file's name with the name of its folder, such as `demo-sensevoice/model.pt`."""
    return f"{path.parent.name}/{path.name}"
