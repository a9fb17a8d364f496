"""All rows of a report as compact data for the script of its table: JSON columns, deflated, in base64.

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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.evaluation.report.columns import Columns
from workbench.text.normalisers import find_normaliser
from workbench.text.rates import RateName, units_of

SEPARATOR = "\x1f"
MOST_CHARACTERS = 4000  # of one text


def packed(columns: Columns, runnable: Mapping[str, Any] | None = None) -> str:
    """Returns the columns as base64 text of a zlib stream of JSON.

    Args:
        runnable: more entries of the object.
    """
    plain = {**plain_columns(columns), **(runnable or {})}
    written = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(written.encode("utf-8", "replace"), 6)).decode("ascii")


def plain_columns(columns: Columns) -> dict[str, Any]:
    """Returns the columns as plain JSON values; see the script `evaluation/report.js` for their use."""
    units = _units(columns.normaliser)
    given = [_short(each.text) for each in columns.utterances]
    normal = [units(text, name) for text, name in zip(given, columns.names)]
    counts = np.nan_to_num(columns.counts["primary"], nan=-1).astype(int)
    models = []
    for place, model in enumerate(columns.models):
        said = [None if text is None else _short(text) for text in columns.texts[model]]
        heard = [None if text is None else units(text, name) for text, name in zip(said, columns.names)]
        models.append(
            {
                "key": model,
                "name": columns.short[model],
                "text": [_told(text, raw) for text, raw in zip(said, given)],
                "units": [_units_told(text, raw) for text, raw in zip(heard, said)],
                "counts": [counts[:, place, kind].tolist() for kind in range(4)],
                "failed": {str(row): _short(why) for row, why in columns.failures[model].items()},
                "milliseconds": _whole(1000 * columns.compute[:, place]),
            }
        )
    return {
        "rate": columns.rate,
        "normaliser": columns.normaliser,
        "ids": [_short(each.id) for each in columns.utterances],
        "audio": [_short(each.audio) for each in columns.utterances],
        "offsets": [round(each.offset, 3) for each in columns.utterances],
        "centiseconds": _whole(100 * columns.seconds),
        "kinds": "".join(name[0] for name in columns.names),  # W, C or M
        "reference": given,
        "units": [_units_told(text, raw) for text, raw in zip(normal, given)],
        "groups": {
            name: _indexed([getattr(each, name) for each in columns.utterances])
            for name in ("speaker", "noise", "language")
        },
        "models": models,
    }


def _units(normaliser: str) -> Any:
    """Returns a function of a text and the name of its rate: the normalised text as its units."""
    function = find_normaliser(normaliser).function

    @functools.lru_cache(maxsize=1 << 16)  # right hypotheses equal their references
    def units(text: str, name: RateName) -> str:
        separator = " " if name == "WER" else SEPARATOR
        return separator.join(units_of(function(text), name))

    return units


def _told(text: str | None, known: str | None) -> str | int:
    return 0 if text is None else 1 if text == known else text


def _units_told(text: str | None, raw: str | None) -> str | int:
    known = _told(text, raw)
    return 2 if isinstance(known, str) and raw is not None and text == plain(raw) else known


def plain(text: str) -> str:
    """Returns what the script makes of a text itself: ASCII letters small, marks between words blanks, single blanks.

    Of a text that is not ASCII it returns what no normalised text is.
    """
    return " ".join(text.lower().translate(_MARKS).split()) if text.isascii() else SEPARATOR


_MARKS = str.maketrans(dict.fromkeys('.,;:!?"()-', " "))


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _whole(values: np.ndarray) -> list[int]:
    """Rounded numbers, -1 for those that are not known."""
    found: list[int] = np.nan_to_num(np.round(values), nan=-1, posinf=-1, neginf=-1).astype(np.int64).tolist()
    return found


def _indexed(values: Sequence[str | None]) -> dict[str, Any] | None:
    """The different values in order, and for each row the number of its own, -1 without one; None if all lack one."""
    names = sorted({_short(each) for each in values if each})
    if not names:
        return None
    at = {name: place for place, name in enumerate(names)}
    return {"names": names, "of": [at[_short(each)] if each else -1 for each in values]}
