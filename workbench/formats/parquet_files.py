"""Opens Parquet files with pyarrow, and checks what they claim about their size before pyarrow believes it.

A file of a few kilobytes may claim a page of two gigabytes, or a billion equal rows. So its footer and the headers of
its pages are read here first. The objects of pyarrow with metadata are not used: a damaged footer makes some of them
end the whole process.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from workbench.core.errors import BadInput, Unavailable, WorkbenchError, message_of
from workbench.formats.thrift_values import MAX_STRUCT_BYTES, Struct, ThriftReader

NO_PYARROW = "Parquet files need pyarrow, which is not installed: pip install pyarrow"
OLDEST = 18  # of pyarrow; long before it, a file could run code
MIN_ROW = 32  # bytes of the file for each of its rows, on average
BUFFER = 1 << 20  # bytes that are read at a time
MAGIC = b"PAR1"  # at both ends of a file
# The numbers of fields of the footer, of a row group, of a column in it, of its statistics, and of a page's header.
_ROW_GROUPS, _COLUMNS, _ROWS, _COLUMN = 4, 1, 3, 3
_ENCODINGS, _PATH, _LENGTH, _PAGES, _DICTIONARY, _STATISTICS, _NULLS = 2, 3, 7, 9, 11, 12, 3
_UNCOMPRESSED, _COMPRESSED = 2, 3
_DELTA_BYTE_ARRAY = 7
"""An encoding in which a text has only what differs from the one before. pyarrow reads no dictionary out of it."""

_MALFORMED = (ValueError, LookupError, TypeError, AttributeError)  # fields of a footer are missing, or of another type


def parquet_library() -> tuple[Any, Any]:
    """Returns the modules `pyarrow` and `pyarrow.parquet`; raises `Unavailable` if they are missing or too old."""
    try:
        # By name, as the lock leaves it out: it takes 170 MB.
        pyarrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise Unavailable(NO_PYARROW) from None
    if int(pyarrow.__version__.partition(".")[0]) < OLDEST:
        raise Unavailable(f"Parquet files need pyarrow {OLDEST} or newer, and {pyarrow.__version__} is installed")
    return pyarrow, parquet


@contextlib.contextmanager
def parquet_errors(name: str) -> Iterator[None]:
    """Raises `BadInput`, with the name of a file, for what pyarrow raises about its content."""
    pyarrow, _ = parquet_library()
    try:
        yield
    except WorkbenchError:
        raise
    except (pyarrow.ArrowException, OSError, MemoryError, RuntimeError, *_MALFORMED) as error:
        raise BadInput(f"{name} cannot be read as a Parquet file ({message_of(error, 100)})") from error


@dataclass(frozen=True)
class Chunk:
    """A column in one row group."""

    path: str  # such as audio.bytes
    first: int  # byte of the file where its pages begin
    length: int  # bytes of its pages
    nulls: int | None  # rows without a value; None if the file does not say
    is_delta: bool  # whether texts are stored as differences


class ParquetFile:
    """An open Parquet file, whose rows are read a few at a time.

    Args:
        file: it stays the caller's, who closes it.
        name: for messages.
        path: of the same file on this machine, which pyarrow reads faster; without one, pages are not checked, since
            reading here and there in a file that is far away takes long.

    Raises `BadInput` for a file that is damaged or claims more rows than it can hold.
    """

    def __init__(self, file: BinaryIO, name: str, path: str | None = None):
        self.name = name
        self._file, self._path = file, path
        self._parquet = parquet_library()[1]
        with parquet_errors(name):
            footer, size = _footer(file)
            groups = footer.get(_ROW_GROUPS, [])
            self.groups: list[int] = [int(each[_ROWS]) for each in groups]
            """The number of rows of each row group."""
            self._chunks = [list(map(_chunk, each[_COLUMNS])) for each in groups]
            self.rows = sum(self.groups)
            if min(self.groups, default=0) < 0 or self.rows * MIN_ROW > size:
                raise BadInput(f"{name} has {size} bytes, too few for the {self.rows} rows that it claims to hold")
            self.schema = self._opened().schema_arrow
            """The columns, as pyarrow describes them."""

    def _opened(self, texts: Sequence[str] = ()) -> Any:
        self._file.seek(0)
        return self._parquet.ParquetFile(
            self._path or self._file, buffer_size=BUFFER, pre_buffer=False, read_dictionary=list(texts) or None
        )

    def is_empty(self, column: str) -> bool:
        """Returns whether a column, by its path, has no value at all, as the statistics in the file say."""
        return all(
            chunk.nulls == rows
            for rows, chunks in zip(self.groups, self._chunks)
            for chunk in chunks
            if chunk.path == column
        )

    def batches(
        self, group: int, columns: Sequence[str], count: int, largest: int, texts: Sequence[str] = ()
    ) -> Iterator[Any]:
        """Yields record batches of a row group.

        Args:
            columns: their paths, such as `audio.path`.
            count: rows of a batch; where texts are stored as differences, which may be much shorter, a batch has one.
            largest: bytes of a page, unpacked.
            texts: those of the columns whose equal values are kept once.

        Raises `BadInput` for a larger page and for damage.
        """
        found = 0
        if not self.groups[group]:
            return
        if any(chunk.is_delta and chunk.path in texts for chunk in self._chunks[group]):
            count, texts = 1, ()
        with parquet_errors(self.name):
            if self._path is not None:
                self._check_pages(group, columns, largest)
            opened = self._opened(texts)
            for batch in opened.iter_batches(count, row_groups=[group], columns=list(columns), use_threads=False):
                found += batch.num_rows
                if found > self.groups[group]:
                    break
                yield batch
        if found != self.groups[group]:
            raise BadInput(f"{self.name} holds another number of rows than it claims; it may be damaged")

    def _check_pages(self, group: int, columns: Sequence[str], largest: int) -> None:
        for chunk in self._chunks[group]:
            if not any(chunk.path == each or chunk.path.startswith(f"{each}.") for each in columns):
                continue
            for size in page_sizes(self._file, chunk.first, chunk.length):
                if not 0 <= size <= largest:
                    raise BadInput(
                        f"{self.name} has a page of {size} bytes in its column {chunk.path:.80}; expected at most "
                        f"{largest}, as in a file with smaller row groups"
                    )


def _footer(file: BinaryIO) -> tuple[Struct, int]:
    """Returns what a file says about itself, and its size; raises `ValueError` if it is no Parquet file."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if len(end) < 8 or end[4:] != MAGIC or not length <= min(MAX_STRUCT_BYTES, size - 12):
        raise ValueError("it has no footer that can be read; the file may be incomplete or encrypted")
    file.seek(size - 8 - length)
    return ThriftReader(io.BytesIO(file.read(length))).read_struct(), size


def _chunk(fields: Struct) -> Chunk:
    column = fields[_COLUMN]
    first = min(column[_PAGES], column.get(_DICTIONARY) or column[_PAGES])
    path = b".".join(column[_PATH]).decode("utf-8", "replace")
    nulls = column.get(_STATISTICS, {}).get(_NULLS)
    return Chunk(path, first, column[_LENGTH], nulls, _DELTA_BYTE_ARRAY in column[_ENCODINGS])


def page_sizes(file: BinaryIO, first: int, length: int) -> Iterator[int]:
    """Yields how many bytes each page of a column takes unpacked, as their headers say.

    Args:
        first: where in the file the column begins.
        length: bytes of the column.

    Raises `ValueError` for what is no page.
    """
    position = first
    while position < first + length:
        file.seek(position)
        reader = ThriftReader(file)
        header = reader.read_struct()
        compressed = header.get(_COMPRESSED, -1)
        if compressed < 0:
            raise ValueError(f"there is no page at byte {position}")
        yield header.get(_UNCOMPRESSED, -1)
        position += reader.length + compressed
