"""Keeps arrays by their names: in memory up to a limit, and what is more in a file that nobody else sees.

The file has no name, so it is gone with the arrays that read it, however their process ends.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from workbench.core.errors import Unavailable
from workbench.system.tempdirs import nameless_file

MEMORY_BYTES = 256 << 20  # of all arrays that one keeper has in memory; a minute of speech has twice as much in stages
SMALL_BYTES = 1 << 16  # an array of less stays in memory: it would fill no more than a few pages of a file


class Spill:
    """Arrays by name, in the order in which they came.

    Args:
        limit: bytes of memory; `MEMORY_BYTES` where none is given.
    """

    def __init__(self, limit: int | None = None):
        self.arrays: dict[str, np.ndarray] = {}
        self._limit = MEMORY_BYTES if limit is None else limit
        self._used = 0  # bytes in memory
        self._file: BinaryIO | None = None
        self._end = 0  # of what is in the file

    def put(self, name: str, array: np.ndarray) -> None:
        """Keeps an array: itself while there is memory, else a copy in the file, which cannot be written to.

        Raises `Unavailable` where the disk has no room for it.
        """
        if self._fits(array.nbytes) or array.dtype.kind not in "biufc":
            self._used += array.nbytes
            self.arrays[name] = array
            return
        file, start = self._place(array.nbytes)
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        written = 0
        while written < len(values):  # one call writes 2 GB at most
            written += os.pwrite(file.fileno(), values[written:], start + written)
        self.arrays[name] = _mapped(file, start, array.shape, array.dtype, mmap.ACCESS_READ)

    def room(self, name: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """An array of zeros to be filled by the caller, who may then `release` it. Raises as `put`."""
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
        """Gives everything up."""
        self.arrays.clear()
        self._file, self._used, self._end = None, 0, 0

    def _fits(self, count: int) -> bool:
        return count < SMALL_BYTES or self._used + count <= self._limit

    def _place(self, count: int) -> tuple[BinaryIO, int]:
        """Room for so many bytes in the file, and where it begins."""
        start = -(-self._end // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        try:
            if self._file is None:
                self._file = nameless_file()
            if hasattr(os, "posix_fallocate"):
                # Room that gives out under a mapping would end the process.
                os.posix_fallocate(self._file.fileno(), start, count)
            else:
                self._file.truncate(start + count)
        except OSError as error:
            raise Unavailable(
                f"there is no room for {count / 1e6:.0f} MB of temporary files ({error.strerror or error}); trace "
                f"fewer stages, or name another folder in TMPDIR"
            ) from error
        self._end = start + count
        return self._file, start


def release(array: np.ndarray) -> None:
    """Gives back the memory in which the pages of an array in a file lie; they are read again when they are needed."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def _mapped(file: BinaryIO, start: int, shape: tuple[int, ...], kind: np.dtype[Any], access: int) -> np.ndarray:
    count = math.prod(shape) * kind.itemsize
    return np.ndarray(shape, kind, mmap.mmap(file.fileno(), count, access=access, offset=start))
