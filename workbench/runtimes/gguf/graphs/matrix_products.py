"""Linear layers of many frames in numpy, whose products with f32 and bf16 matrices are faster than ggml's.

The work is cut into tasks by the sizes alone, so the result does not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from workbench.runtimes.gguf.graphs.ggml import Library
from workbench.runtimes.gguf.graphs.numpy_nodes import Share, array_of
from workbench.runtimes.gguf.graphs.weights import Tensor

MIN_FRAMES = 48  # frames; with fewer, ggml is as fast
MAX_FRAMES, MAX_OUTPUTS = 512, 256  # the most of a task: frames, and rows of the matrix


def tasks(frames: int, outputs: int) -> list[tuple[slice, slice]]:
    """Returns (frames, outputs) of each task."""
    return [(rows, columns) for rows in blocks(frames, MAX_FRAMES) for columns in blocks(outputs, MAX_OUTPUTS)]


def blocks(length: int, maximum: int) -> list[slice]:
    """Cuts a length into as few blocks of at most `maximum` as possible, of nearly the same size."""
    count = -(-length // maximum)
    return [slice(length * n // count, length * (n + 1) // count) for n in range(count)]


def linear(library: Library, x: Tensor, weight: np.ndarray, bias: np.ndarray | None) -> Share:
    """Returns a function for `NumpyNodes.add`, which computes a thread's tasks of a linear layer of x [T, in].

    Args:
        weight: [out, in], in float32, or in bfloat16 as uint16.
        bias: float32 [out].
    """
    packed = weight.dtype == np.uint16
    todo = tasks(x.shape[0], len(weight))

    def share(result: np.ndarray, number: int, threads: int) -> None:
        values = array_of(x)
        for rows, outputs in todo[number::threads]:
            part, place = weight[outputs], result[rows, outputs]
            if packed:
                stored, part = part, np.empty(part.shape, np.float32)
                library.cpu_bf16_to_fp32(stored.ctypes.data, part.ctypes.data, part.size)
            np.matmul(values[rows], part.T, out=place)
            if bias is not None:
                place += bias[outputs]

    return share
