"""ggml's own quantisers, which the package gguf lacks for types of few bits."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from workbench.formats.gguf_types import BY_NAME, dequantised
from workbench.runtimes.gguf.graphs.ggml import library_files


@cache
def _base() -> ctypes.CDLL:
    base = ctypes.CDLL(str(library_files()[0]))
    base.ggml_quantize_init.argtypes = [ctypes.c_int]
    base.ggml_quantize_chunk.restype = ctypes.c_size_t
    base.ggml_quantize_chunk.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    return base


def quantised(values: np.ndarray, kind: str, importance: np.ndarray) -> np.ndarray:
    """Returns values [rows, columns] after they were stored in a type.

    Args:
        importance: of each column, positive.
    """
    values, importance = (np.ascontiguousarray(each, np.float32) for each in (values, importance))
    rows, columns = values.shape
    stored = BY_NAME[kind]
    written = np.zeros((rows, columns // stored.block * stored.block_bytes), np.uint8)
    _base().ggml_quantize_init(stored.number)
    arrays = values.ctypes.data, written.ctypes.data
    size = _base().ggml_quantize_chunk(stored.number, *arrays, 0, rows, columns, importance.ctypes.data)
    assert size == written.size
    return dequantised(written, kind, "it")
