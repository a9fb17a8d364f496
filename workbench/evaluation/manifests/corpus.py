"""What reading a manifest returns, a corpus of good and bad rows, and the checks of every row."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.core.errors import BadInput
from workbench.evaluation.addresses import without_query
from workbench.evaluation.places import SOUNDS
from workbench.evaluation.rows import Utterance

# The names that a column may have; messages use the first one. Upper and lower case are the same.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "audio": (
        "audio",
        "audio_filepath",
        "audio_path",
        "file_name",
        "filename",
        "path",
        "file",
        "file_path",
        "wav",
        "wav_path",
        "wav_filename",
        "audio_file",
        "source",
    ),
    "text": ("text", "transcript", "transcription", "sentence", "reference", "ref", "normalized_text")
    + ("txt", "wrd", "target"),  # of WeNet, SpeechBrain and FunASR
    "id": ("id", "utt_id", "utterance_id", "uid", "utt", "key"),
    "offset": ("offset", "start", "begin", "start_time", "begin_time"),
    "duration": ("duration", "dur"),
    "end": ("end", "end_time"),
    "channel": ("channel",),
    "language": ("language", "lang", "locale"),
    "speaker": ("speaker", "speaker_id", "spk", "spk_id", "client_id", "speaker_name"),
    "noise": ("noise", "noise_type", "environment", "condition"),
}
TABLES = (".csv", ".tsv")  # endings of lists; .gz may follow
OBJECTS = (".jsonl", ".json", ".ndjson", ".manifest", ".list")  # the last is WeNet's
ARROW = ".arrow"  # ending of Hugging Face's tables that are not read
MAX_ID_CHARACTERS = 300
MAX_TEXT_CHARACTERS = 1_000_000
MAX_SECONDS = 10_000_000
DEEPEST = 50  # levels of lists and objects in a column

_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # characters that no text has


@dataclass(frozen=True)
class Bad:
    """A row that cannot be used."""

    where: str  # such as "list.csv, line 7"
    reason: str  # one sentence

    def to_dict(self) -> dict[str, str]:
        """Returns plain values for a line of skipped.jsonl."""
        return {"where": self.where, "reason": self.reason}


@dataclass(frozen=True)
class Wanted:
    """What of a corpus is wanted, where it has several of a kind; None for the only one or the usual one."""

    split: str | None = None  # of a folder of Parquet files, such as test
    text_column: str | None = None  # of a table or a list of objects


WHOLE = Wanted()


@dataclass(frozen=True)
class FoundCorpus:
    """A corpus that can be read."""

    path: str  # of the manifest, absolute; or its address
    root: str  # relative audio paths start here: a folder, an archive or an address
    format: str
    rows: Callable[[], Iterator[Utterance | Bad]]  # reads from the beginning


class UnusableRow(Exception):
    """Raised inside a reader for a row that cannot be used; its message is the reason."""


ManifestRow = Mapping[str, Any]
"""A row by the names of `COLUMNS`, values as they stand there, and `extra`."""

Rows = Iterator[tuple[str, ManifestRow | str]]
"""The place of each row, and the row or the reason why it cannot be read."""


def is_list(name: str) -> bool:
    """Returns whether a file is a list of recordings, by its name."""
    return name.lower().removesuffix(".gz").endswith((*TABLES, *OBJECTS))


def lists_among(names: Collection[str]) -> list[str]:
    """Returns the lists among the files of a folder, sorted.

    A `.json` may be anything: it counts only if there is no other list, and no recording of the same name.
    """
    lists = sorted(filter(is_list, names))
    others = [each for each in lists if not each.lower().endswith(".json")]
    if others or not lists:
        return others
    recordings = {posixpath.splitext(each)[0] for each in names if is_sound(each)}
    return [each for each in lists if each[: -len(".json")] not in recordings]


def is_sound(name: str) -> bool:
    """Returns whether a file is a recording, by its name."""
    return posixpath.splitext(name)[1].lower() in SOUNDS


def by_known_names(fields: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns a row under the names of `COLUMNS`, the rest under `extra`.

    Args:
        columns: the column of each name, from `columns_of`; by default found in this row.
    """
    column_of = columns_of(fields) if columns is None else columns
    row: dict[str, Any] = {name: fields[column] for name, column in column_of.items() if column in fields}
    used_columns = set(column_of.values())
    row["extra"] = {
        name: value for name, value in fields.items() if name not in used_columns and value not in (None, "")
    }
    return row


def columns_of(
    names: Iterable[str], text_column: str | None = None, columns: Mapping[str, tuple[str, ...]] = COLUMNS
) -> dict[str, str]:
    """Returns the column of each name: the first spelling in `columns` that is there.

    Args:
        text_column: the column with the text, whatever its name.
    """
    lower = {name.strip().lower(): name for name in reversed([*names])}
    column_of = {
        meaning: next(lower[alias] for alias in aliases if alias in lower)
        for meaning, aliases in columns.items()
        if any(alias in lower for alias in aliases)
    }
    return column_of if text_column is None else {**column_of, "text": text_column}


def checked(rows: Rows, root: str) -> Iterator[Utterance | Bad]:
    """Yields utterances, and what is wrong with the other rows.

    Args:
        root: paths of audio below this root become relative to it.
    """
    places_of_ids: dict[str, str] = {}
    for where, row in rows:
        try:
            if isinstance(row, str):
                raise UnusableRow(row)
            utterance = _utterance(row, root)
            name = utterance.id
            if name in places_of_ids and row.get("id") not in (None, ""):
                raise UnusableRow(
                    f"its id {name!r:.80} already appears at {places_of_ids[name]}; expected an id of its own"
                )
            number = 1
            while utterance.id in places_of_ids:  # the manifest has no ids: another segment of the same recording
                number += 1
                utterance = replace(utterance, id=f"{name} ({number})")
            places_of_ids[utterance.id] = where.rpartition(", ")[2]
            yield utterance
        except UnusableRow as reason:
            yield Bad(where, str(reason))


def _utterance(row: ManifestRow, root: str) -> Utterance:
    audio = _text(row, "audio", "the path of a recording")
    if not audio.strip():
        raise UnusableRow(f"it names no recording; expected one under {' or '.join(COLUMNS['audio'][:2])}")
    if row.get("text") is None:
        raise UnusableRow("it has no text; expected the words that are said, or an empty text for silence")
    text = _text(row, "text", "the words that are said")
    offset = _seconds(row, "offset") or 0.0
    duration = _seconds(row, "duration")
    end = _seconds(row, "end")
    if duration is None and end is not None:
        if end <= offset:
            raise UnusableRow(f"it ends at {end:g} s and begins at {offset:g} s; expected an end after its beginning")
        duration = round(end - offset, 6)
    if duration is not None and duration <= 0:
        raise UnusableRow(f"its duration is {duration:g} s; expected more than 0")
    audio = relative_to(audio, root)
    name = _text(row, "id", "a name") or _name_of(audio) + (f"#{offset:g}" if offset else "")
    if len(name) > MAX_ID_CHARACTERS:
        raise UnusableRow(f"its id has {len(name)} characters; expected at most {MAX_ID_CHARACTERS}")
    channel = _channel(row.get("channel"))
    optional_texts = {each: _text(row, each, "a text") or None for each in ("language", "speaker", "noise")}
    return Utterance(
        name, audio, text, offset, duration, channel, **optional_texts, extra=_json_values(row.get("extra") or {})
    )


def relative_to(audio: str, root: str) -> str:
    """Returns the path of a recording relative to the root if it is below the root; otherwise unchanged."""
    if root and audio.startswith(root.rstrip("/") + "/"):
        return audio[len(root.rstrip("/")) + 1 :]
    return posixpath.normpath(audio) if "://" not in audio and "::" not in audio else audio


def _name_of(audio: str) -> str:
    if "://" in audio:
        return audio if len(audio) <= MAX_ID_CHARACTERS else without_query(audio)
    path = PurePosixPath(audio)
    return str(path.with_suffix("")) if path.suffix else audio


def _text(row: ManifestRow, name: str, expected: str) -> str:
    value = row.get(name)
    if value is None:
        return ""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if number and name in ("id", "speaker", "text"):
        value = str(value)  # a speaker is often a number, and so is the text of a recording of digits
    if not isinstance(value, str):
        raise UnusableRow(f"its {name} is {value!r:.60}; expected {expected}")
    if len(value) > MAX_TEXT_CHARACTERS:
        raise UnusableRow(f"its {name} has {len(value)} characters; expected at most {MAX_TEXT_CHARACTERS}")
    if _NO_TEXT.search(value):
        raise UnusableRow(f"its {name} {value!r:.60} holds characters that no text has; expected {expected}")
    return value if name in ("audio", "id") else value.strip()  # the name of a file may begin with a space


def _seconds(row: ManifestRow, name: str) -> float | None:
    value = row.get(name)
    if value is None or value == "":
        return None
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and 0 <= number <= MAX_SECONDS):
        raise UnusableRow(f"its {name} is {value!r:.40}; expected a number of seconds, 0 or more")
    return number


def _channel(value: Any) -> int | None:
    if value is None or value == "":
        return None
    try:
        number = float(value) if not isinstance(value, bool) else -1.0  # pandas writes 1.0 where another row has none
    except (TypeError, ValueError):
        number = -1.0
    if not (0 <= number < 1000 and number.is_integer()):
        raise UnusableRow(f"its channel is {value!r:.40}; expected a number, counted from 0")
    return int(number)


def _json_values(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the other columns as values that JSON can hold."""
    return {_encodable(str(name)): _finite(value, DEEPEST) for name, value in extra.items()}


def _finite(value: Any, levels: int) -> Any:
    if not levels:
        raise UnusableRow(f"a column of it holds lists in lists deeper than {DEEPEST} levels; expected plain values")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, dict):
        return {_encodable(str(name)): _finite(each, levels - 1) for name, each in value.items()}
    return [_finite(each, levels - 1) for each in value] if isinstance(value, (list, tuple)) else value


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def no_corpus(path: str | Path, fault: str) -> BadInput:
    """Returns the error for a manifest that cannot be read at all."""
    return BadInput(
        f"{path} {fault}; expected a manifest: .csv, .tsv, .jsonl, .parquet, a lhotse cut set, a Kaldi data directory, "
        "or a folder of recordings with their transcripts beside"
    )


def check_whole(path: str | Path, wanted: Wanted, columns: bool = False) -> None:
    """Raises `BadInput` where a part of a corpus is wanted that has no such parts.

    Args:
        columns: whether it has columns.
    """
    if wanted.split is not None:
        raise BadInput(f"{path} has no splits to choose one of; only a folder of Parquet files has them")
    if wanted.text_column is not None and not columns:
        raise BadInput(f"{path} has no columns to choose the text from; only tables and lists of objects have them")


def inside_a_table(path: str) -> BadInput:
    """Returns the error for a table that holds sound and is not read."""
    return BadInput(
        f"{path} is a table in a binary format that is not read; expected Parquet files, which to_parquet of the "
        "package datasets writes, or each recording in a file of its own, and a metadata.jsonl with file_name and "
        "transcription"
    )


def with_slashes(path: str) -> str:
    r"""Returns a path that was written on Windows, such as `clips\a.wav`, as other systems read it."""
    return path if "/" in path else path.replace("\\", "/")
