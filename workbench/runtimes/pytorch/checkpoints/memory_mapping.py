"""Tensors that are mapped from a file: finds their addresses, and releases their memory after use."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

from torch import Tensor


def mapped_regions(*paths: Path) -> list[tuple[int, int]]:
    """Returns the regions (first address, end address) where this process has mapped the files; empty if the system
    cannot tell.
    """
    maps = Path("/proc/self/maps")
    if not paths or not maps.is_file():
        return []
    files = {str(path.resolve()) for path in paths}
    regions = []
    for line in maps.read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] in files:
            first, end = fields[0].split("-")
            regions.append((int(first, 16), int(end, 16)))
    return regions


def release_pages(tensor: Tensor, regions: list[tuple[int, int]]) -> None:
    """Lets the system drop the pages of a tensor that is mapped from a file; the next access reads them again."""
    first, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    if not any(low <= first and end <= high for low, high in regions):
        return
    page = mmap.PAGESIZE
    first, end = -(-first // page) * page, end // page * page
    if end > first:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_DONTNEED)
