"""Manifests with a row on each line: CSV, TSV, JSON lines, and lhotse's cut sets."""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, TextIO

from workbench.core.errors import BadInput
from workbench.evaluation.manifests.corpus import (
    COLUMNS,
    MAX_TEXT_CHARACTERS,
    ManifestRow,
    Rows,
    by_known_names,
    columns_of,
    no_corpus,
    with_slashes,
)
from workbench.evaluation.places import SOUNDS

DELIMITERS = (",", "\t", ";", "|")  # the first one that the first line has
MAX_LINES = 100  # lines of one row, whose text may hold line breaks
CLIPS = "clips/"  # where Common Voice's recordings lie, which its lists do not say
COMMON_VOICE = {"client_id", "path", "sentence"}


def table_rows(file: TextIO, name: str, path: str, tabs: bool, text_column: str | None = None) -> Rows:
    """Yields the rows of a table whose first line names its columns; raises `BadInput` for one that has none.

    Args:
        text_column: the column with the text; by default the usual one.
    """
    names, columns, form = _read_header(next(file, "").removeprefix("\ufeff"), path, tabs, text_column)
    # Python's own limit, of 131,072 characters, is less than the text of three hours.
    csv.field_size_limit(max(csv.field_size_limit(), 2 * MAX_TEXT_CHARACTERS))
    clips = CLIPS if {*names} >= COMMON_VOICE else ""
    place = names.index(columns["audio"])
    lines = _Lines(file)
    reader = csv.reader(lines, **form)
    while True:
        lines.begin()
        where = f"{name}, line {lines.number + 2}"
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield where, _unclosed(lines) or f"it cannot be read as a row of a table ({error})"
            continue
        if not any(each.strip() for each in row):
            continue
        if len(row) != len(names):
            wrong = f"it has {len(row)} fields; expected {len(names)}, as the first line"
            yield where, _unclosed(lines) or wrong
            continue
        # One line of a row may look like a row: the first one, or the last one if its text comes before its recording.
        own = row[place].strip()
        recordings = [_recording_in(line, form["delimiter"], len(names), place) for line in lines.of_row]
        # The name of its own recording may hold the delimiter.
        recordings = [each for each in recordings if each and not own.endswith(form["delimiter"] + each)]
        if lines.more and recordings not in ([], [own]):
            yield where, _unclosed(lines)
            continue
        fields = by_known_names(dict(zip(names, row)), columns)
        fields |= {each: fields[each].rstrip() for each in ("audio", "id") if each in fields}
        fields["audio"] = with_slashes(fields["audio"])
        if clips and "/" not in fields["audio"]:
            fields["audio"] = clips + fields["audio"]
        yield where, fields


def _read_header(
    first: str, path: str, tabs: bool, text_column: str | None
) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """Returns what the first line of a table says: the names of its columns, the column of each known name (see
    `columns_of`), and how `csv.reader` reads its rows.

    Raises `BadInput` if no recording or no text has a column, or several columns have a name.
    """
    if not first.strip():
        raise no_corpus(path, "has an empty first line")
    delimiter = "\t" if tabs else next((each for each in DELIMITERS if each in first), ",")
    # In a .tsv, or between bars, a quote is a character like any other.
    quoting = csv.QUOTE_NONE if tabs or delimiter == "|" else csv.QUOTE_MINIMAL
    form: dict[str, Any] = {"delimiter": delimiter, "quoting": quoting, "strict": True, "skipinitialspace": True}
    try:
        [names] = csv.reader([first], **form)
    except (csv.Error, ValueError) as error:
        raise no_corpus(path, f"has a first line that is not a list of columns ({error})") from error
    names = [each.strip() for each in names]
    columns = columns_of(names, text_column)
    if text_column is not None and text_column not in names:
        raise BadInput(f"{path} has the columns {', '.join(names)[:200]}, and none called {text_column!r:.80}")
    for column in ("audio", "text"):
        if column not in columns:
            raise no_corpus(
                path,
                f"has the columns {', '.join(names)[:200]} and none with the {column} "
                f"({', '.join(COLUMNS[column][:4])} ...)",
            )
    for column in columns.values():
        if names.count(column) > 1:
            raise no_corpus(path, f"has {names.count(column)} columns named {column!r:.80}")
    return names, columns, form


class _Lines:
    """The lines of a file. It counts them, and takes back those that a quotation mark has drawn into a row."""

    def __init__(self, file: TextIO):
        self.number = 0
        self._file = file
        self._row: list[str] = []
        self._back: deque[str] = deque()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self._row) == MAX_LINES:
            raise csv.Error(f"it goes on for more than {MAX_LINES} lines")
        line = self._back.popleft() if self._back else next(self._file)
        self._row.append(line)
        self.number += 1
        return line

    def begin(self) -> None:
        """Begins a row."""
        self._row.clear()

    @property
    def of_row(self) -> list[str]:
        """The lines of the row."""
        return self._row

    @property
    def more(self) -> list[str]:
        """The lines of the row after its first one."""
        return self._row[1:]

    def take_back(self) -> bool:
        """Takes back all lines of the row but its first one; returns whether there are any."""
        self._back.extendleft(reversed(self.more))
        self.number -= len(self.more)
        return bool(self.more)


def _recording_in(line: str, delimiter: str, count: int, place: int) -> str:
    """Returns the recording of a line that looks like a row of its own: it has as many fields, and names a recording.

    Returns an empty text for other lines.
    """
    fields = line.split(delimiter)
    recording = fields[place].strip(' "\r\n') if len(fields) == count else ""
    return recording if PurePosixPath(recording).suffix.lower() in SOUNDS else ""


def _unclosed(lines: _Lines) -> str:
    """Returns what is wrong with a row whose lines do not belong together, and takes these back; else nothing."""
    return "a quotation mark in it is not closed; expected two, or none" if lines.take_back() else ""


def json_rows(file: TextIO, name: str, text_column: str | None = None) -> Rows:
    """Yields the rows of a file with a JSON object on each line: of a cut set, its cuts.

    Args:
        text_column: the key of the text in objects that are no cuts; by default the usual one.
    """
    for number, line in enumerate(file, 1):
        where = f"{name}, line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line.removeprefix("\ufeff"))
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:80]
            yield where, f"it is not JSON ({reason}); expected an object on each line"
            continue
        if not isinstance(row, dict):
            yield where, f"it is {type(row).__name__}; expected a JSON object with audio and text"
        elif is_cut(row):
            yield where, _cut(row)
        else:
            fields = by_known_names(_flat_audio(row), columns_of(row, text_column))
            if isinstance(fields.get("audio"), str):
                fields["audio"] = with_slashes(fields["audio"])
            yield where, fields


def is_cut(row: Mapping[str, Any]) -> bool:
    """Returns whether an object is a cut of lhotse's."""
    return "supervisions" in row or str(row.get("type", "")).endswith("Cut")


def _flat_audio(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an object with a plain path: Hugging Face's data sets name a recording as {"path": ...}."""
    audio = row.get("audio")
    return {**row, "audio": audio["path"]} if isinstance(audio, dict) and "path" in audio else row


def _cut(row: Mapping[str, Any]) -> ManifestRow | str:
    """Returns a cut as a row: its segment of the recording, and the texts of its supervisions in their order."""
    recording, supervisions = row.get("recording"), row.get("supervisions")
    if row.get("type") in ("MixedCut", "PaddingCut"):
        return f"it is a {row['type']}; expected cuts of one recording"
    if not isinstance(recording, dict) or not isinstance(recording.get("sources"), list):
        return "its cut has no recording with sources; expected a cut set that holds its recordings (lhotse cut simple)"
    if not isinstance(supervisions, list) or not supervisions or not all(isinstance(s, dict) for s in supervisions):
        return "its cut has no supervision, so its words are unknown; expected a supervision with a text"
    sources = recording["sources"]
    if len(sources) != 1 or not isinstance(sources[0], dict):
        return f"its recording has {len(sources)} sources; expected one"
    if sources[0].get("type") not in ("file", "url"):
        return f"its recording is of type {sources[0].get('type')!r:.40}; expected a file or a url"
    ordered = sorted(
        supervisions, key=lambda each: each.get("start") if isinstance(each.get("start"), (int, float)) else 0
    )
    texts = [each.get("text") for each in ordered]
    if any(not isinstance(text, str) for text in texts):
        return "a supervision of its cut has no text; expected the words that are said"
    customs = [each.get("custom") or {} for each in (ordered[0], row)]
    if not all(isinstance(each, dict) for each in customs):
        return "custom of its cut is not an object; expected further columns by name"
    custom = {**customs[0], **customs[1]}
    channel = row.get("channel")
    channels = recording.get("channel_ids") or sources[0].get("channels") or [0]
    if not isinstance(channels, list):
        return f"the channels of its recording are {channels!r:.40}; expected a list of numbers"
    is_whole_recording = not row.get("start") and row.get("duration") == recording.get("duration")
    return {
        "id": row.get("id"),
        "audio": sources[0].get("source"),
        "text": " ".join(text.strip() for text in texts if text),
        "offset": row.get("start"),
        "duration": None if is_whole_recording else row.get("duration"),
        "channel": channel if isinstance(channel, int) and len(channels) != 1 else None,
        "language": ordered[0].get("language"),
        "speaker": ordered[0].get("speaker"),
        "noise": custom.pop("noise", None),
        "extra": custom,
    }
