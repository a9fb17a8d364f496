"""Manifests that are Parquet files, as Hugging Face's data sets, with the sound in a column or in files that they name.

A folder may hold several splits of many files each: `data/test-00000-of-00002.parquet`, or `test/0000.parquet`. Only
the texts are read here, a few rows at a time, and no sound.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.phrases import enumerated
from workbench.evaluation.manifests.corpus import (
    COLUMNS,
    ManifestRow,
    Rows,
    Wanted,
    by_known_names,
    columns_of,
    no_corpus,
    with_slashes,
)
from workbench.evaluation.parquet_sounds import PARQUET, opened_parquet, sound_column
from workbench.evaluation.places import SOUNDS, place_of
from workbench.formats.parquet_files import ParquetFile, parquet_errors, parquet_library

BATCH = 256  # rows that are read at a time
MAX_PAGE_BYTES = 1 << 27  # of a column without sound
MAX_NAME_CHARACTERS = 150  # characters of the name that a recording had as a file
MAX_NAMED = 12  # splits that an error names
OF_A_PART = ("offset", "duration", "end", "channel")
"""In GigaSpeech and AMI, these columns say where somebody cut the sound out. The whole sound of a row counts."""
_PART = re.compile(r"(.*?)(?:(?:^|[-_.])[0-9]+(?:-of-[0-9]+)?(?:-[0-9a-f]{16})?)?", re.DOTALL)
_NUMBER = re.compile(r"([0-9]+)-of-[0-9]+")


def parquet_rows(root: str, names: Sequence[str], wanted: Wanted) -> Rows:
    """Yields the recordings of the files of one split.

    Args:
        root: the folder or the address that the names start at.
        names: of the files, sorted.

    Raises `BadInput` if there are several splits and none is chosen, and for a file without sound or texts; and
    `Unavailable` without pyarrow.
    """
    chosen = _of_split(names, wanted.split, root)
    yield from _missing_parts(chosen)
    yield from file_rows(root, chosen, wanted)


def file_rows(root: str, names: Sequence[str], wanted: Wanted) -> Rows:
    """Yields the recordings of files, as `parquet_rows` does, whether or not they are all of their split."""
    tables = [_Table(root, name, wanted) for name in names]
    has_ids = _are_unique(tables)
    for table in tables:
        yield from table.rows(has_ids)


def _of_split(names: Sequence[str], split: str | None, root: str) -> list[str]:
    """Returns the files of the only split or of the chosen one."""
    splits: dict[str, list[str]] = defaultdict(list)
    for name in names:
        splits[_split_of(name)].append(name)
    matching = [each for each in splits if split is None or split in (each, each.rpartition("/")[2])]
    if len(matching) != 1:
        listed = sorted(splits)
        omitted = [f"{len(listed) - MAX_NAMED} more"] if len(listed) > MAX_NAMED else []
        have = f"{root} holds the split{'s' * (len(listed) > 1)} {enumerated([*listed[:MAX_NAMED], *omitted])}"
        if split is not None and not matching:
            raise BadInput(f"{have}, and none called {split!r:.80}")
        raise BadInput(f"{have}; choose one with --split, or give only its files")
    return splits[matching[0]]


def _split_of(name: str) -> str:
    """Returns the name of a file's split, with its folders: that of the folder if the file has only a number."""
    path = PurePosixPath(name)
    part = _PART.fullmatch(path.name[: -len(PARQUET)])
    split = part[1] if part else path.name
    if split in ("", "part", "shard", "data"):
        return path.parent.as_posix() if path.parent.name else "data"
    return (path.parent / split).as_posix()


def _missing_parts(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the parts of a split that are not among its files, such as after an incomplete download."""
    numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
    for name in names:
        if found := _NUMBER.search(PurePosixPath(name).name):
            numbers[name[: name.rindex(found[0])], found[0].partition("-of-")[2]].add(int(found[1]))
    for (before, count), there in numbers.items():
        lacking = int(count[:9]) - len(there)
        if lacking > 0:
            yield f"{before}*-of-{count}{PARQUET}", f"{lacking} of its {int(count)} parts are not there"


def _are_unique(tables: Sequence[_Table]) -> bool:
    """Returns whether the ids of all rows differ: in FLEURS, recordings of one sentence share an id."""
    ids: set[Any] = set()
    count = 0
    for table in tables:
        if "id" not in table.columns:
            return False
        for _, row in table.values((table.columns["id"],)):
            value = row[table.columns["id"]]
            ids.add(value)
            count += 1
            if value in (None, "") or len(ids) < count:
                return False
    return True


class _Table:
    """One file: which of its columns mean what. It is open only while its rows are read."""

    def __init__(self, root: str, name: str, wanted: Wanted):
        self.name, self._place = name, place_of(root, name)
        file, parquet = opened_parquet(self._place, self._place)
        with file:
            schema, sound = parquet.schema, sound_column(parquet.schema)
            self._has_sound = sound is not None and not parquet.is_empty(sound)
        self._plain, self._texts = _plain_columns(schema)
        self.columns = columns_of(self._plain)
        if wanted.text_column is not None:
            self.columns["text"] = wanted.text_column
        self._path = _path_column(schema, sound)  # of the name of the file that a recording was
        if self._has_sound:
            self.columns = {key: value for key, value in self.columns.items() if key not in ("audio", *OF_A_PART)}
        for each in ("language", "noise"):  # a number stands for a class
            if each in self.columns and self.columns[each] not in self._texts:
                del self.columns[each]
        has = f"has the columns {', '.join(schema.names)[:200]}"
        if not self._has_sound and self._path is None and "audio" not in self.columns:
            raise no_corpus(self._place, f"{has} and none with sound, as Hugging Face has it: bytes and path")
        if self.columns.get("text") not in self._plain:
            if wanted.text_column is not None:
                raise BadInput(f"{self._place} {has}, and no text in one called {wanted.text_column!r:.80}")
            usual = ", ".join(COLUMNS["text"][:4])
            raise BadInput(f"{self._place} {has}, and none with the text ({usual} ...); name it with --text-column")

    def rows(self, has_ids: bool) -> Rows:
        """Yields the recordings."""
        columns = {key: value for key, value in self.columns.items() if key != "id" or has_ids}
        for number, row in self.values((*self._plain, *([self._path] if self._path else []))):
            path = row.pop(self._path, None) if self._path else None
            yield f"{self.name}, row {number}", self._row(number, by_known_names(row, columns), path)

    def _row(self, number: int, fields: dict[str, Any], path: str | None) -> ManifestRow:
        if not self._has_sound:
            audio = fields.get("audio") if self._path is None else path
            return {**fields, "audio": with_slashes(audio) if isinstance(audio, str) else audio}
        name = PurePosixPath(with_slashes(path or "")).name
        is_name = (
            PurePosixPath(name).suffix.lower() in SOUNDS and len(name) <= MAX_NAME_CHARACTERS and name.isprintable()
        )
        return {**fields, "audio": f"{self.name}/{number}" + (f"/{name}" if is_name else "")}

    def values(self, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the number of each row, from 0, and its values in some columns."""
        file, parquet = opened_parquet(self._place, self._place)
        with file:
            number = 0
            for batch in self._batches(parquet, tuple(columns)):
                with parquet_errors(self._place):
                    values = [_values(_array(batch, name)) for name in columns]
                for row in zip(*values):
                    yield number, dict(zip(columns, row))
                    number += 1

    def _batches(self, parquet: ParquetFile, columns: tuple[str, ...]) -> Iterator[Any]:
        texts = tuple(each for each in columns if each in self._texts or each == self._path)
        for group in range(len(parquet.groups)):
            yield from parquet.batches(group, columns, BATCH, MAX_PAGE_BYTES, texts)


def _path_column(schema: Any, sound: str | None) -> str | None:
    """Returns the path of the column with the names that go with the sound, or None if there is none."""
    if sound is None or not sound.endswith(".bytes"):
        return None
    column = sound.removesuffix(".bytes")
    kind = schema.field(column).type
    place = kind.get_field_index("path")
    return f"{column}.path" if place >= 0 and _is_text(kind.field(place).type) else None


def _is_text(kind: Any) -> bool:
    types = parquet_library()[0].types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _array(batch: Any, name: str) -> Any:
    if name in batch.schema.names:
        return batch.column(name)
    column, _, inside = name.rpartition(".")
    return batch.column(column).field(inside)


def _values(array: Any) -> list[Any]:
    """Returns the values of a batch as Python has them; equal texts of a dictionary are one object."""
    if not parquet_library()[0].types.is_dictionary(array.type):
        values: list[Any] = array.to_pylist()
        return values
    indices = array.indices.to_pylist()
    texts = {index: array.dictionary[index].as_py() for index in {*indices} if index is not None}
    return [texts.get(index) for index in indices]


def _plain_columns(schema: Any) -> tuple[list[str], set[str]]:
    """Returns the columns of texts, numbers and truths, whose values JSON can hold; and those of texts among them."""
    types = parquet_library()[0].types
    plain: list[str] = []
    texts: set[str] = set()
    for field in schema:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        if _is_text(kind):
            texts.add(field.name)
        elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            continue
        plain.append(field.name)
    return plain, texts


def is_parquet(name: str) -> bool:
    """Returns whether a file is a Parquet file, by its name."""
    return name.lower().endswith(PARQUET)
