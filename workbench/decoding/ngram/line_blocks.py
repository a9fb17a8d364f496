"""Reads a text file, plain or gzipped, in blocks of whole lines, and counts the lines. Knows nothing of n-grams.

Lines may end as on any system; in the blocks they all end in a line feed.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from workbench.core.errors import BadInput, message_of

BLOCK = 1 << 20  # bytes that are read at a time
MAX_LINE_BYTES = 1 << 20  # a file with a longer line is not a text of lines
GZIP = b"\x1f\x8b"


class LineBlocks:
    """The lines of a file, one at a time or in blocks. Raises `BadInput` where reading fails."""

    def __init__(self, file: BufferedReader, name: str):
        """Begins to read a file that is open.

        Args:
            name: of the file, for messages.
        """
        self.number = 0
        """The number of the line that was returned last, counted from 1."""
        self._name = name
        self._buffer = b""
        self._ends_in_return = (
            False  # whether the bytes so far ended in a carriage return, which may begin a line's end
        )
        self._fault: Exception | None = None
        self._file: BufferedReader | gzip.GzipFile = file
        with self._errors_as_bad_input():
            if file.peek(len(GZIP))[: len(GZIP)] == GZIP:
                self._file = gzip.GzipFile(fileobj=file, mode="rb")
            self._fill()
        self._buffer = self._buffer.removeprefix(codecs.BOM_UTF8)

    def next(self) -> bytes | None:
        """Returns the next line that is not blank, without white space around it; None at the end of the file."""
        while True:
            end = self._buffer.find(b"\n") + 1
            if not end and self._fill():
                continue
            line, self._buffer = (self._buffer[:end], self._buffer[end:]) if end else (self._buffer, b"")
            if not line:
                return None
            self.number += 1
            if stripped := line.strip():
                return stripped

    def blocks(self, end: bytes = b"") -> Iterator[tuple[int, bytes]]:
        """Yields blocks of whole lines, each with the number of its first line.

        Args:
            end: the lines before the next one that starts with these bytes; all lines if it is empty.
        """
        while self._buffer or self._fill():
            if end and self._buffer.startswith(end):
                return
            end_index = self._buffer.find(b"\n" + end) + 1 if end else 0
            is_last = bool(end_index)
            end_index = end_index or self._buffer.rfind(b"\n") + 1
            if not end_index and self._fill():
                continue
            end_index = end_index or len(self._buffer)
            block, self._buffer = self._buffer[:end_index], self._buffer[end_index:]
            first = self.number + 1
            self.number += block.count(b"\n") + (not block.endswith(b"\n"))
            yield first, block
            if is_last:
                return

    def _fill(self) -> bool:
        """Reads on; returns False at the end of the file."""
        if len(self._buffer) > MAX_LINE_BYTES:
            raise BadInput(
                f"line {self.number + 1} of {self._name} is longer than {MAX_LINE_BYTES} bytes; expected a text of "
                "lines"
            )
        pieces: list[bytes] = []
        size = 0
        with self._errors_as_bad_input():
            if self._fault is not None:
                raise self._fault
            try:
                while size < BLOCK and (piece := self._file.read1(BLOCK - size)):
                    pieces.append(piece)
                    size += len(piece)
            except (OSError, EOFError, zlib.error) as error:
                self._fault = error  # raised when the bytes before it are used up
                if not size:
                    raise
        content = self._unified(b"".join(pieces))
        self._buffer += content
        return bool(content) or (size > 0 and self._fill())

    def _unified(self, content: bytes) -> bytes:
        """Returns the next bytes of the file with a line feed at the end of each line."""
        if self._ends_in_return:
            content = content.removeprefix(b"\n")
        self._ends_in_return = content.endswith(b"\r")
        return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in content else content

    @contextlib.contextmanager
    def _errors_as_bad_input(self) -> Iterator[None]:
        """Turns a failure to read into `BadInput`."""
        try:
            yield
        except (OSError, EOFError, zlib.error) as error:
            if not isinstance(self._file, gzip.GzipFile):
                raise BadInput(f"{self._name} cannot be read: {message_of(error)}") from error
            line = self.number + self._buffer.count(b"\n")
            raise BadInput(
                f"the compressed data of {self._name} are damaged or cut off after line {line}; expected a whole file"
            ) from error


@contextlib.contextmanager
def open_lines(path: Path) -> Iterator[LineBlocks]:
    """Yields the lines of a file. Raises `BadInput` if it cannot be read."""
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or message_of(error)}") from error
    with file:
        yield LineBlocks(file, path.name)
