"""The lanes of the timeline: what every model transcribed in a recording, word by word, and where models differ.

It turns rows of a run into plain values for the browser.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from panels.transcribe.job import Row, RunState
from workbench.text.spoken_words import Disagreement, SpokenWord, disagreements, spoken_words

MAX_COMPARED = 6  # transcripts of a recording that are compared with each other; each pair takes time


def lanes_of(state: RunState) -> dict[str, list[dict[str, Any]]]:
    """Returns the lanes by the recording's path, in the order of the rows; rows without a transcript have none."""
    rows_by_path: dict[str, list[Row]] = {}
    for row in state.rows:
        if row.transcript is not None:
            rows_by_path.setdefault(row.path, []).append(row)
    return {path: _lanes(rows) for path, rows in rows_by_path.items()}


def _lanes(rows: Sequence[Row]) -> list[dict[str, Any]]:
    words = [spoken_words(row.transcript.segments if row.transcript else ()) for row in rows]
    # A stopped transcript lacks the words after the stop, and that is not a disagreement.
    complete = [index for index, row in enumerate(rows) if row.status == "done"][:MAX_COMPARED]
    differing = dict(zip(complete, disagreements([words[index] for index in complete]), strict=True))
    nothing = Disagreement(frozenset(), ())
    return [_lane(row, words[index], differing.get(index, nothing)) for index, row in enumerate(rows)]


def _lane(row: Row, words: Sequence[SpokenWord], differing: Disagreement) -> dict[str, Any]:
    assert row.transcript is not None
    return {
        "key": row.key,
        "title": row.title,
        "note": "stopped" if row.status == "stopped" else "",
        "segments": sorted([round(each.start, 3), round(each.end, 3), each.text] for each in row.transcript.segments),
        "words": [
            [
                round(word.start, 3),
                round(word.end, 3),
                word.text,
                int(index in differing.words),
                int(word.timed),
                None if word.confidence is None else round(word.confidence, 2),
            ]
            for index, word in enumerate(words)
        ],
        "missing": [list(each) for each in differing.missing],
    }
