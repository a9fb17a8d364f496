"""All rows of a report as compact data for the script of its table, in parts, so that the table appears at once.

The first part is JSON: what is said once, and which columns of numbers follow. The second part is those columns as
32-bit integers, which the script uses as they are. Texts come last, as JSON in blocks of `BLOCK` rows: the script reads
the first block, shows the table, and reads the others while the reader looks. Each part is deflated, in base64.

Texts that are there already are left out: a hypothesis that equals its reference is 1, a normalised text that equals
its raw text is 1, one that equals `plain` of its raw text is 2, and what a model has not done is 0. The counts come
along, so the script never counts errors itself; of normalised texts it gets the units, with `SEPARATOR` between them
where that is not a blank, to mark differences.
"""

from __future__ import annotations

import base64
import functools
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.evaluation.report.columns import Columns
from workbench.text.normalisers import find_normaliser
from workbench.text.rates import RateName, units_of

SEPARATOR = "\x1f"
MAX_CHARACTERS = 4000  # of one text
BLOCK = 1024  # rows
GROUPS = ("speaker", "noise", "language")
COUNTED = ("substitutions", "deletions", "insertions", "hits")
MAX_INT32 = (1 << 31) - 1


@dataclass(frozen=True)
class Packed:
    """The parts, each as base64 text of a zlib stream."""

    head: str  # of JSON
    numbers: str  # of integers, little-endian; column after column, as `numbers` in the head names them
    texts: tuple[str, ...]  # of JSON, a block of rows each


def packed(columns: Columns) -> Packed:
    """Returns the columns in parts."""
    numbers = _numbers(columns)
    head = _json({**_head(columns), "numbers": list(numbers)})
    all_numbers = np.concatenate([*numbers.values(), np.zeros(0, np.int32)]).astype("<i4").tobytes()
    return Packed(
        _deflated(head), _deflated(all_numbers), tuple(_deflated(_json(block)) for block in text_blocks(columns))
    )


def _head(columns: Columns) -> dict[str, Any]:
    return {
        "count": len(columns),
        "block": BLOCK,
        "rate": columns.rate,
        "root": "" if columns.run is None else columns.run.manifest.root,
        "normaliser": columns.normaliser,
        "kinds": "".join(name[0] for name in columns.names),  # W, C or M
        "groups": {name: names for name in GROUPS if (names := _different(columns, name))},
        "models": [
            {
                "key": model,
                "name": columns.short[model],
                "failed": {str(row): _short(reason) for row, reason in columns.failures[model].items()},
            }
            for model in columns.models
        ],
    }


def _numbers(columns: Columns) -> dict[str, np.ndarray]:
    """Returns the columns of numbers by their names; -1 for unknown numbers."""
    numbers = {
        "centiseconds": _int32(100 * columns.seconds),
        "offsets": _int32(1000 * np.array([each.offset for each in columns.utterances], dtype=float)),
    }
    for name in GROUPS:
        if names := _different(columns, name):
            at = {each: place for place, each in enumerate(names)}
            values = [getattr(each, name) for each in columns.utterances]
            numbers[name] = _int32(np.array([at[_short(each)] if each else -1 for each in values], dtype=float))
    for place in range(len(columns.models)):
        for kind, name in enumerate(COUNTED):
            numbers[f"{name} {place}"] = _int32(columns.counts["primary"][:, place, kind])
        numbers[f"milliseconds {place}"] = _int32(1000 * columns.compute[:, place])
    return numbers


def text_blocks(columns: Columns) -> Iterator[dict[str, Any]]:
    """Yields the texts of `BLOCK` rows after another; see `assets/evaluation/report.js` for their use."""
    units = _units(columns.normaliser)
    for first in range(0, len(columns), BLOCK):
        rows = slice(first, first + BLOCK)
        utterances, names = columns.utterances[rows], columns.names[rows]
        references = [_short(each.text) for each in utterances]
        reference_units = [units(text, name) for text, name in zip(references, names)]
        models = []
        for model in columns.models:
            transcripts = [None if text is None else _short(text) for text in columns.texts[model][rows]]
            transcript_units = [None if text is None else units(text, name) for text, name in zip(transcripts, names)]
            models.append(
                {
                    "text": [_text_or_code(text, original) for text, original in zip(transcripts, references)],
                    "units": [_units_or_code(text, original) for text, original in zip(transcript_units, transcripts)],
                }
            )
        yield {
            "ids": [_short(each.id) for each in utterances],
            "audio": [_short(each.audio) for each in utterances],
            "reference": references,
            "units": [_units_or_code(text, original) for text, original in zip(reference_units, references)],
            "models": models,
        }


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def _deflated(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 6)).decode("ascii")


def _units(normaliser: str) -> Any:
    """Returns a function of a text and the name of its rate: the normalised text as its units."""
    function = find_normaliser(normaliser).function

    @functools.lru_cache(maxsize=1 << 16)  # right hypotheses equal their references
    def units(text: str, name: RateName) -> str:
        separator = " " if name == "WER" else SEPARATOR
        return separator.join(units_of(function(text), name))

    return units


def _text_or_code(text: str | None, original: str | None) -> str | int:
    return 0 if text is None else 1 if text == original else text


def _units_or_code(text: str | None, original: str | None) -> str | int:
    text_or_code = _text_or_code(text, original)
    return (
        2 if isinstance(text_or_code, str) and original is not None and text == plain_text(original) else text_or_code
    )


def plain_text(text: str) -> str:
    """Returns what the script itself makes of a text: ASCII letters in lower case, one space between two words.

    For a text that is not ASCII, it returns `SEPARATOR`, which equals no normalised text.
    """
    return " ".join(text.lower().translate(_MARKS).split()) if text.isascii() else SEPARATOR


_MARKS = str.maketrans(dict.fromkeys('.,;:!?"()-', " "))


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def _int32(values: np.ndarray) -> np.ndarray:
    """Returns rounded numbers as 32-bit integers, -1 for unknown ones."""
    rounded = np.nan_to_num(np.round(values), nan=-1, posinf=-1, neginf=-1)
    return np.clip(rounded, -1, MAX_INT32).astype(np.int32)


def _different(columns: Columns, name: str) -> Sequence[str]:
    """Returns the different values of a group, sorted."""
    return sorted({_short(value) for each in columns.utterances if (value := getattr(each, name))})
