"""Reads files of transcripts, as toolkits write what they have recognised.

| file | what it is |
| --- | --- |
| `.trn` | sclite's: the words, then the id in parentheses; ESPnet's `hyp.trn` |
| `.ctm` | NIST's: a word with its recording, channel, start, duration and maybe its confidence on each line |
| `.csv`, `.tsv` | a table with a line of names |
| `.jsonl`, `.json`, `.list` ... | an object on each line, as NeMo's `pred_text`, or one list of objects |
| any other | the id, then the words on each line, as Kaldi, ESPnet and WeNet write `text`; or lines of a `.trn` |

The whole file is in memory, at most 1 GiB. It is read before anything is computed.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.evaluation.manifests.corpus import (
    COLUMNS,
    MAX_TEXT_CHARACTERS,
    OBJECTS,
    TABLES,
    columns_of,
    with_slashes,
)
from workbench.evaluation.manifests.named_values import named_values
from workbench.formats.text_files import lines_of, read_text, words_of

TRN, CTM, COMMENT = ".trn", ".ctm", ";;"
# In NeMo's lists, `text` is the reference, so the names of a recognised text come first.
RECOGNISED_TEXT = ("pred_text", "prediction", "pred", "hypothesis", "hyp", "hyp_text", *COLUMNS["text"])
COLUMNS_READ = {"id": COLUMNS["id"], "audio": COLUMNS["audio"], "text": RECOGNISED_TEXT}
_TRN_LINE = re.compile(r"(.*?)[ \t]*\(([^()\s]+)\)[ \t]*")


@dataclass(frozen=True)
class FoundTranscript:
    """One transcript of a file.

    `words` are mappings with `text`, `start` and `end` in seconds, and `confidence` if it is known; empty if the file
    has no times.
    """

    where: str  # such as "hyp.trn, line 7"
    names: tuple[str, ...]  # of its recording: an id, a path, or both
    text: str
    words: tuple[Mapping[str, Any], ...] = ()


def read_transcripts(path: Path) -> list[FoundTranscript]:
    """Returns the transcripts of a file, in its order.

    Raises `BadInput` with the line of what cannot be read, and for a file without transcripts.
    """
    try:
        text = read_text(path)
    except BadInput as error:
        raise BadInput(f"{path.name} cannot be read: {error}") from error
    found = list(_reader(path, text)(text, path.name))
    if not found:
        raise BadInput(f"{path.name} holds no transcripts; {EXPECTED}")
    for each in found:
        if len(each.text) > MAX_TEXT_CHARACTERS:
            raise BadInput(
                f"{each.where}: the transcript has {len(each.text)} characters; expected at most {MAX_TEXT_CHARACTERS}"
            )
    return found


EXPECTED = (
    "expected a file with an id and a text on each line, as Kaldi's text, a .trn or .ctm for sclite, or a .csv, .tsv "
    "or .jsonl"
)

Reader = Callable[[str, str], Iterator[FoundTranscript]]
"""Reads the text of a file with a name."""


def _reader(path: Path, text: str) -> Reader:
    suffix = path.suffix.lower()
    if suffix == CTM:
        return _ctm
    if suffix in TABLES:
        return _tsv if suffix == ".tsv" else _csv
    if suffix in OBJECTS:
        return _objects
    lines = [line for line in lines_of(text) if line.strip() and not line.startswith(COMMENT)]
    return _trn if suffix == TRN or all(_TRN_LINE.fullmatch(line) for line in lines) else _kaldi


def _trn(text: str, name: str) -> Iterator[FoundTranscript]:
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip() or line.startswith(COMMENT):
            continue
        where = f"{name}, line {number}"
        found = _TRN_LINE.fullmatch(line)
        if found is None:
            raise BadInput(f"{where} has no id in parentheses at its end; expected: three seven one (utterance_12)")
        yield FoundTranscript(where, (found[2],), found[1].strip())


def _kaldi(text: str, name: str) -> Iterator[FoundTranscript]:
    for number, utterance, words in named_values(text.encode(), name):
        yield FoundTranscript(f"{name}, line {number}", (utterance,), words)


def _ctm(text: str, name: str) -> Iterator[FoundTranscript]:
    """Yields one transcript for each recording, with its words in order of time."""
    words: dict[str, list[dict[str, Any]]] = {}
    channels: dict[str, tuple[str, str]] = {}  # of each recording: its channel, and the line that names it first
    for number, line in enumerate(lines_of(text), 1):
        fields = words_of(line)
        if not fields or line.startswith(COMMENT):
            continue
        where = f"{name}, line {number}"
        if len(fields) not in (5, 6):
            raise BadInput(
                f"{where} has {len(fields)} fields; expected RECORDING CHANNEL START DURATION WORD [CONFIDENCE]"
            )
        recording, channel, *numbers, word = fields[:5]
        start, duration = (_number(each, where) for each in numbers)
        first_channel, first = channels.setdefault(recording, (channel, where))
        if channel != first_channel:
            raise BadInput(
                f"{where}: {recording!r:.60} has the channel {channel!r:.20}, and {first_channel!r:.20} at {first}; "
                "expected one channel for each recording"
            )
        spoken = {"text": word, "start": round(start, 3), "end": round(start + duration, 3)}
        if len(fields) == 6 and fields[5].upper() != "NA":
            spoken["confidence"] = _number(fields[5], where)
        words.setdefault(recording, []).append(spoken)
    for recording, spoken_words in words.items():
        ordered = sorted(spoken_words, key=lambda word: word["start"])
        spelled = " ".join(word["text"] for word in ordered)
        yield FoundTranscript(channels[recording][1], (recording,), spelled, tuple(ordered))


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e7:
        raise BadInput(f"{where}: {text!r:.40} is no time and no confidence; expected a number, 0 or more")
    return number


def _csv(text: str, name: str) -> Iterator[FoundTranscript]:
    first_line = lines_of(text)[0]
    return _table(text, name, next((each for each in (",", "\t", ";") if each in first_line), ","))


def _tsv(text: str, name: str) -> Iterator[FoundTranscript]:
    return _table(text, name, "\t", csv.QUOTE_NONE)


def _table(text: str, name: str, delimiter: str, quoting: Any = csv.QUOTE_MINIMAL) -> Iterator[FoundTranscript]:
    csv.field_size_limit(max(csv.field_size_limit(), 2 * MAX_TEXT_CHARACTERS))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True)
    try:
        names = [each.strip() for each in next(reader, [])]
        columns = columns_of(names, columns=COLUMNS_READ)
        for row in reader:
            where = f"{name}, line {reader.line_num}"
            if not any(each.strip() for each in row):
                continue
            if len(row) != len(names):
                raise BadInput(f"{where} has {len(row)} fields; expected {len(names)}, as the first line")
            yield _of_fields(dict(zip(names, row, strict=True)), columns, where)
    except csv.Error as error:
        raise BadInput(f"{name}, line {reader.line_num} cannot be read as a row of a table ({error})") from error


def _objects(text: str, name: str) -> Iterator[FoundTranscript]:
    if text.lstrip().startswith("["):
        whole = _json(text, name)
        rows = [(f"{name}, entry {number}", each) for number, each in enumerate(whole, 1)]
    else:
        rows = [
            (f"{name}, line {number}", _json(line, f"{name}, line {number}"))
            for number, line in enumerate(lines_of(text), 1)
            if line.strip()
        ]
    for where, row in rows:
        if not isinstance(row, dict):
            raise BadInput(f"{where} is {type(row).__name__}; expected an object with an id and a text")
        yield _of_fields(row, columns_of(row, columns=COLUMNS_READ), where)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{where} is not JSON ({str(error)[:80]}); expected an object on each line, or a list"
        ) from error


def _of_fields(fields: Mapping[str, Any], columns: Mapping[str, str], where: str) -> FoundTranscript:
    """Returns the transcript of a row of a table, or of an object; `columns` as `columns_of` returns them."""
    references = [fields[columns[meaning]] for meaning in ("id", "audio") if meaning in columns]
    names = [with_slashes(str(each).strip()) for each in references if isinstance(each, (str, int))]
    names = [each for each in names if each]
    if not names:
        expected = f"{COLUMNS['id'][0]} or {COLUMNS['audio'][0]}"
        raise BadInput(f"{where} names no recording; expected its id or its path, under {expected}")
    if "text" not in columns:
        raise BadInput(f"{where} has no text; expected one under {', '.join(RECOGNISED_TEXT[:3])} or text")
    text = fields[columns["text"]]
    if not isinstance(text, str):
        raise BadInput(f"{where}: its {columns['text']} is {text!r:.60}; expected a text")
    return FoundTranscript(where, tuple(names), text.strip())
