"""Stores arrays by name: in memory up to a limit, the rest in an unnamed temporary file.

The file has no name, so it disappears with the arrays that read it, however their process ends.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from workbench.core.errors import DiskFull
from workbench.system.tempdirs import nameless_file

MEMORY_BYTES = 256 << 20  # of all arrays that one spill has in memory; the stages of a minute of speech take twice that
SMALL_BYTES = 1 << 16  # a smaller array stays in memory, because it would fill only a few pages of a file


class Spill:
    """Arrays by name, in the order in which they came.

    Args:
        limit: bytes of memory; `MEMORY_BYTES` by default.
    """

    def __init__(self, limit: int | None = None):
        self.arrays: dict[str, np.ndarray] = {}
        self._limit = MEMORY_BYTES if limit is None else limit
        self._used = 0  # bytes in memory
        self._file: BinaryIO | None = None
        self._end = 0  # bytes in the file

    def put(self, name: str, array: np.ndarray) -> None:
        """Stores an array: the array itself while the limit allows, else a read-only copy in the file.

        Raises `DiskFull` if the disk has no space for it.
        """
        if self._fits(array.nbytes) or array.dtype.kind not in "biufc":
            self._used += array.nbytes
            self.arrays[name] = array
            return
        file, start = self._place(array.nbytes)
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        byte_count = 0
        while byte_count < len(values):  # one call writes at most 2 GB
            byte_count += os.pwrite(file.fileno(), values[byte_count:], start + byte_count)
        self.arrays[name] = _mapped(file, start, array.shape, array.dtype, mmap.ACCESS_READ)

    def allocate(self, name: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Returns an array of zeros that the caller fills and may then `release`. Raises the same errors as `put`."""
        kind = np.dtype(dtype)
        count = math.prod(shape) * kind.itemsize
        if self._fits(count):
            self._used += count
            array = np.zeros(tuple(shape), kind)
        else:
            file, start = self._place(count)
            array = _mapped(file, start, tuple(shape), kind, mmap.ACCESS_WRITE)
        self.arrays[name] = array
        return array

    def clear(self) -> None:
        """Drops all arrays, in memory and in the file."""
        self.arrays.clear()
        self._file, self._used, self._end = None, 0, 0

    def _fits(self, count: int) -> bool:
        return count < SMALL_BYTES or self._used + count <= self._limit

    def _place(self, count: int) -> tuple[BinaryIO, int]:
        """Reserves `count` bytes in the file; returns the file and where they begin."""
        start = -(-self._end // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        try:
            if self._file is None:
                self._file = nameless_file()
            if hasattr(os, "posix_fallocate"):
                # A disk that becomes full under a mapping would kill the process.
                os.posix_fallocate(self._file.fileno(), start, count)
            else:
                self._file.truncate(start + count)
        except OSError as error:
            raise DiskFull(
                f"there is no room for {count / 1e6:.0f} MB of temporary files ({error.strerror or error}); trace "
                f"fewer stages, or name another folder in TMPDIR"
            ) from error
        self._end = start + count
        return self._file, start


def release(array: np.ndarray) -> None:
    """Frees the memory of an array's pages in a file; the next access reads them again."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def _mapped(file: BinaryIO, start: int, shape: tuple[int, ...], kind: np.dtype[Any], access: int) -> np.ndarray:
    count = math.prod(shape) * kind.itemsize
    return np.ndarray(shape, kind, mmap.mmap(file.fileno(), count, access=access, offset=start))
