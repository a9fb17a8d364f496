"""The base of file objects that show the bytes of a file with changes, so that libsndfile reads it rightly."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO


class FileView(io.RawIOBase):
    """A read-only, seekable view of a file. It closes a file that it has opened by its path."""

    def __init__(self, source: Path | BinaryIO) -> None:
        self._opened_here = isinstance(source, Path)
        self._file: BinaryIO = source.open("rb") if isinstance(source, Path) else source

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if self._opened_here and not self.closed:
            self._file.close()
        super().close()
