"""The base of file objects that show the bytes of a file with changes, so that libsndfile reads it rightly."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

_LAST_PLACE = (1 << 63) - 1


@contextlib.contextmanager
def kept_in_place(source: Path | BinaryIO) -> Iterator[BinaryIO]:
    """Opens a path for reading, and closes it afterwards. Moves an open file back to its place afterwards."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            yield file
        return
    place = source.tell()
    try:
        yield source
    finally:
        source.seek(place)


class FileView(io.RawIOBase):
    """A read-only, seekable view of a file. It closes a file that it has opened by its path."""

    def __init__(self, source: Path | BinaryIO) -> None:
        self._opened_here = isinstance(source, Path)
        self._file: BinaryIO = source.open("rb") if isinstance(source, Path) else source

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def _move(self, place: int) -> None:
        """Goes to a byte of the file; a place that no file has changes nothing, as in C.

        A damaged header can name such a place, and an exception in a callback of libsndfile would be printed.
        """
        if 0 <= place <= _LAST_PLACE:
            self._file.seek(place)

    def close(self) -> None:
        if self._opened_here and not self.closed:
            self._file.close()
        super().close()


class PatchedFile(FileView):
    """A view of the first `length` bytes of a file, with other bytes at some places."""

    def __init__(self, source: Path | BinaryIO, length: int, patches: Mapping[int, bytes]) -> None:
        super().__init__(source)
        self._length, self._patches = length, dict(patches)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._file.tell(), io.SEEK_END: self._length}[whence]
        self._move(base + offset)
        return self.tell()

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        start = self._file.tell()
        content = bytearray(self._file.read(max(0, min(len(buffer), self._length - start))))
        for offset, patch in self._patches.items():
            low, high = max(start, offset), min(start + len(content), offset + len(patch))
            if low < high:
                content[low - start : high - start] = patch[low - offset : high - offset]
        buffer[: len(content)] = content
        return len(content)
