"""Reads recordings out of Parquet files, as Hugging Face's data sets have them: the bytes of a sound file in each row.

`test.parquet/17/clip.flac` is the recording in row 17 of a file, counted from 0; what follows may be the name that it
had as a file.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from workbench.core.errors import BadInput
from workbench.evaluation.addresses import is_address, opened_address
from workbench.formats.parquet_files import ParquetFile, parquet_errors, parquet_library

PARQUET = ".parquet"
MAX_PAGE_BYTES = 1 << 30  # of a column with sound
NAMES = ("audio", "sound", "speech", "recording", "wav", "flac", "mp3", "ogg", "opus", "m4a", "file")
"""Names of columns with the bytes of sound, the usual ones first; a column of bytes with a path may have any name."""


def opened_parquet(path: str, name: str) -> tuple[BinaryIO, ParquetFile]:
    """Opens a Parquet file by its path or address. The caller closes the first result.

    Args:
        name: for messages.

    Raises `Unavailable` without pyarrow, `BadInput` for a file that is missing or cannot be read, and the errors of
    `opened_address`.
    """
    parquet_library()
    if is_address(path):
        file = opened_address(path)
    else:
        try:
            file = Path(path).open("rb")  # noqa: SIM115
        except FileNotFoundError:
            raise BadInput(f"there is no file {name:.200}") from None
        except OSError as error:
            raise BadInput(f"{name:.200} cannot be read: {error.strerror or error}") from error
    try:
        return file, ParquetFile(file, f"{name:.200}", None if is_address(path) else path)
    except BaseException:
        file.close()
        raise


def sound_column(schema: Any) -> str | None:
    """Returns the path of the column with the bytes of sound files, such as `audio.bytes`, or None if there is none.

    Args:
        schema: of pyarrow.

    Raises `BadInput` if several columns hold bytes, and none has a usual name.
    """
    types = parquet_library()[0].types
    columns: dict[str, str] = {}

    def is_binary(kind: Any) -> bool:
        return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))

    for field in schema:
        if is_binary(field.type) and field.name in NAMES:
            columns[field.name] = field.name
        elif types.is_struct(field.type):
            place = field.type.get_field_index("bytes")
            if place >= 0 and is_binary(field.type.field(place).type):
                columns[field.name] = f"{field.name}.bytes"
    usual = next((columns[name] for name in NAMES if name in columns), None)
    if usual is None and len(columns) > 1:
        raise BadInput(f"the columns {', '.join(columns)[:200]} all hold bytes; expected the sound in one named audio")
    return usual or next(iter(columns.values()), None)


class SoundTable:
    """A Parquet file that stays open. Reading its rows in their order is fast.

    Args:
        name: for messages.
    """

    def __init__(self, path: str, name: str):
        self._name = name
        self._file, self._parquet = opened_parquet(path, self._name)
        self._column = sound_column(self._parquet.schema)
        self._group = -1  # the row group that is being read
        self._position = 0  # in that group, of the next row
        self._batches: Iterator[Any] = iter(())

    def open(self, member: str) -> BinaryIO:
        """Returns the bytes of the recording in a row as a file; raises `BadInput` if there is none.

        Args:
            member: the number of the row, and maybe a name after it.
        """
        number = member.partition("/")[0]
        if not (number.isascii() and number.isdecimal()) or int(number[:12]) >= self._parquet.rows:
            raise BadInput(f"{self._name:.200} has no row {number:.40}; it has {self._parquet.rows}, counted from 0")
        if self._column is None:
            raise BadInput(f"{self._name:.200} has no column with the bytes of sound files")
        group, position = 0, int(number[:12])
        while position >= self._parquet.groups[group]:
            position -= self._parquet.groups[group]
            group += 1
        if group != self._group or position < self._position:
            self._batches = iter(())  # frees the pages of the other group first
            self._batches = self._parquet.batches(group, (self._column,), 1, MAX_PAGE_BYTES)
            self._group, self._position = group, 0
        try:
            for batch in self._batches:
                self._position += 1
                if self._position > position:
                    return self._bytes(batch, number)
        except BaseException:
            self._group = -1
            raise
        raise BadInput(f"{self._name:.200} ends before its row {number}; it may be damaged")

    def _bytes(self, batch: Any, number: str) -> BinaryIO:
        with parquet_errors(self._name):
            column = batch.column(0)
            value = (column if self._column == batch.schema.field(0).name else column.field(0))[0]
            content = value.as_py()
        if content is None:
            raise BadInput(f"row {number} of {self._name:.200} holds no sound")
        return io.BytesIO(content)

    def close(self) -> None:
        """Closes the file."""
        self._batches = iter(())
        self._file.close()
