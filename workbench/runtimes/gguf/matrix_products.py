"""Linear layers of many frames in numpy, whose products with f32 and bf16 matrices are faster than ggml's.

The work is cut into tasks by the sizes alone, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.runtimes.gguf.ggml import Library

LEAST = 48  # frames; with fewer, ggml is as fast
ROWS, OUTPUTS = 512, 256  # the most of a task: frames, and rows of the matrix

Product = Callable[[np.ndarray, np.ndarray, slice, slice], None]


def tasks(frames: int, outputs: int) -> list[tuple[slice, slice]]:
    """Returns (frames, outputs) of each task."""
    return [(rows, columns) for rows in _blocks(frames, ROWS) for columns in _blocks(outputs, OUTPUTS)]


def _blocks(length: int, most: int) -> list[slice]:
    count = -(-length // most)
    return [slice(length * n // count, length * (n + 1) // count) for n in range(count)]


def product(library: Library, weight: np.ndarray, bias: np.ndarray | None) -> Product:
    """Returns a function that computes one task of a linear layer.

    It takes x [T, in], the place for the result [T, out], and the task's frames and outputs.

    Args:
        weight: [out, in], in float32, or in bfloat16 as uint16.
        bias: float32 [out].
    """
    packed = weight.dtype == np.uint16

    def compute(x: np.ndarray, result: np.ndarray, rows: slice, outputs: slice) -> None:
        part, made = weight[outputs], result[rows, outputs]
        if packed:
            stored, part = part, np.empty(part.shape, np.float32)
            library.cpu_bf16_to_fp32(stored.ctypes.data, part.ctypes.data, part.size)
        np.matmul(x[rows], part.T, out=made)
        if bias is not None:
            made += bias[outputs]

    return compute
