"""Applies the user's edits to the segments of a transcript, so that an export shows what the page showed.

Knows rows of values and transcripts; no file format and no page.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from workbench.core.errors import BadInput
from workbench.session.values import Segment, Token, Transcript
from workbench.text.scripts import join_texts
from workbench.text.subtitles import tokens_in

EDITED_NOTE = "segments edited by hand"
_SAME_SECONDS = 0.0051  # times are shown with two decimals and come back with at most this error
TIME = r"(?:(?:([0-9]{1,9}):)?([0-9]{1,9}):)?([0-9]{1,9}(?:[.,][0-9]*)?|[.,][0-9]+)"
"""A regular expression for times that people write: seconds, or hours, minutes and seconds, which are its groups.

Python and JavaScript both understand it."""


def edited(transcript: Transcript, rows: Iterable[Sequence[Any]]) -> Transcript:
    """Returns the transcript with the rows (start, end, text) as its segments, sorted by start.

    Times are seconds, as numbers or text, or clock times (1:02.5, 0:01:02,500). Segments may overlap. Empty rows are
    left out. An unchanged row keeps its segment. A changed row takes the tags of the segment that it overlaps most, and
    those tokens spoken in it that its text still spells. The ids in `tokens` stay as the model emitted them, and a note
    says that the segments were edited. Without any change, the same transcript is returned.

    Raises `BadInput`, naming the row, for a row without three cells, a time that is missing, negative or no number, and
    an end before its start.
    """
    tokens_by_time = sorted(
        (
            ((token.start + token.end) / 2, token)
            for segment in transcript.segments
            for token in segment.tokens
            if token.start is not None and token.end is not None
        ),
        key=lambda pair: pair[0],
    )
    before = _InTime(transcript.segments)
    segments = []
    for number, row in enumerate(rows, 1):
        cells = list(row)
        if all(_is_blank(cell) for cell in cells):
            continue
        if len(cells) != 3:
            raise BadInput(f"row {number} has {len(cells)} cells; expected three: start, end and text")
        start, end = _seconds(cells[0], "start", number), _seconds(cells[1], "end", number)
        if end < start:
            raise BadInput(
                f"row {number} ends at {end:g} s, before it starts at {start:g} s; expected the end after the start"
            )
        text = "" if _is_blank(cells[2]) else " ".join(str(cells[2]).split())
        segments.append(_segment(before, tokens_by_time, start, end, text))
    segments.sort(key=lambda segment: segment.start)
    if tuple(segments) == transcript.segments:
        return transcript
    text = join_texts([segment.text for segment in segments if segment.text])
    return _changed(transcript, text, segments)


def retold(transcript: Transcript, rows: Iterable[Sequence[Any]]) -> Transcript:
    """Returns the transcript with the rows' texts, for a file format without times.

    Works as `edited`. If a time of a row cannot be read, the result has no segments, and the texts are in row order.
    """
    listed = [list(row) for row in rows]
    try:
        return edited(transcript, listed)
    except BadInput:
        texts = [" ".join(str(row[2]).split()) for row in listed if len(row) == 3 and not _is_blank(row[2])]
        return _changed(transcript, join_texts(texts), ())


def _changed(transcript: Transcript, text: str, segments: Iterable[Segment]) -> Transcript:
    notes = transcript.notes if EDITED_NOTE in transcript.notes else (*transcript.notes, EDITED_NOTE)
    return replace(transcript, text=text, segments=tuple(segments), notes=notes)


class _InTime:
    """Finds segments by their times; hours of speech have thousands."""

    def __init__(self, segments: Iterable[Segment]):
        self._segments = sorted(segments, key=lambda segment: segment.start)
        self._starts = [segment.start for segment in self._segments]
        self._latest_ends = list(accumulate((segment.end for segment in self._segments), max))  # up to each segment

    def at(self, start: float, end: float) -> list[Segment]:
        """Returns the segments with these times, up to their rounding."""
        first = bisect.bisect_left(self._starts, start - 2 * _SAME_SECONDS)
        last = bisect.bisect_right(self._starts, start + 2 * _SAME_SECONDS)
        return [
            segment
            for segment in self._segments[first:last]
            if max(abs(segment.start - start), abs(segment.end - end)) <= _SAME_SECONDS
        ]

    def nearest(self, start: float, end: float) -> Segment | None:
        """Returns the segment that overlaps this time most; None if none does."""
        most, found = 0.0, None
        for place in range(bisect.bisect_left(self._starts, end) - 1, -1, -1):
            if self._latest_ends[place] <= start:
                break
            segment = self._segments[place]
            overlap = min(end, segment.end) - max(start, segment.start)
            if overlap >= most and overlap > 0:
                most, found = overlap, segment
        return found


def _segment(
    before: _InTime, tokens_by_time: Sequence[tuple[float, Token]], start: float, end: float, text: str
) -> Segment:
    for segment in before.at(start, end):
        if " ".join(segment.text.split()) == text:
            return segment
    first = bisect.bisect_left(tokens_by_time, start, key=lambda pair: pair[0])
    end_index = bisect.bisect_right(tokens_by_time, end, key=lambda pair: pair[0])
    tokens = tuple(token for token, _, _ in tokens_in(text, [token for _, token in tokens_by_time[first:end_index]]))
    nearest = before.nearest(start, end)
    return Segment(start, end, text, tokens, nearest.tags if nearest else {})


def _is_blank(cell: Any) -> bool:
    # Tables pass empty cells as None, NaN or empty text.
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or not str(cell).strip()


def _seconds(cell: Any, column: str, number: int) -> float:
    value = math.nan
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        value = float(cell)
    elif match := re.fullmatch(TIME, str(cell).strip()):
        hours, minutes, seconds = match.groups(default="0")
        value = 3600 * int(hours) + 60 * int(minutes) + float(seconds.replace(",", "."))
    if not math.isfinite(value) or value < 0:
        cell_text = "empty" if _is_blank(cell) else repr(str(cell))
        raise BadInput(
            f"the {column} of row {number} is {cell_text}; expected seconds such as 1.25, or a time such as 0:01.25"
        )
    return value
