"""Linear layers of many frames in numpy, whose products of float32 matrices are faster than ggml's.

Matrices of other types are unpacked to float32, block by block. The work is cut into tasks by the sizes alone, so the
result does not depend on the number of threads.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from workbench.runtimes.gguf.graphs.ggml import Library
from workbench.runtimes.gguf.graphs.numpy_nodes import Share, array_of
from workbench.runtimes.gguf.graphs.weights import StoredMatrix, Tensor
from workbench.system.processor_kind import INTEL, flags, vendor

# From so many frames on, ggml is slower: it multiplies f32 and bf16 at about half of the rate of numpy's BLAS.
MIN_FRAMES = {"F32": 48, "BF16": 48}
# On processors with wide vectors of floats, numpy is faster in f16 and q8_0 too, although it unpacks them.
MIN_FRAMES_WITH_WIDE_VECTORS = {**MIN_FRAMES, "F16": 128, "Q8_0": 96}
MAX_FRAMES, MAX_OUTPUTS = 1024, 256  # the most of a task: frames, and rows of the matrix
MANY_FRAMES = 512  # tasks of more frames have half as many outputs, so that there are enough tasks for all threads
UNPACK = {"F16": "cpu_fp16_to_fp32", "BF16": "cpu_bf16_to_fp32", "Q8_0": "dequantize_row_q8_0"}  # functions of ggml


def takes(kind: str, frames: int) -> bool:
    """Returns whether numpy computes a linear layer with weights of that type for so many frames."""
    least = _min_frames().get(kind)
    return least is not None and frames >= least


@cache
def _min_frames() -> dict[str, int]:
    """Returns from how many frames on numpy is faster, for each type in which it can be faster on this processor.

    Intel's AVX-512 multiplies floats twice as fast as AVX2. That of AMD's processors up to Zen 4 does not.
    """
    return MIN_FRAMES_WITH_WIDE_VECTORS if vendor() == INTEL and "avx512f" in flags() else MIN_FRAMES


def tasks(frames: int, outputs: int) -> list[tuple[slice, slice]]:
    """Returns (frames, outputs) of each task."""
    most = MAX_OUTPUTS if frames <= MANY_FRAMES else MAX_OUTPUTS // 2
    return [(rows, columns) for columns in blocks(outputs, most) for rows in blocks(frames, MAX_FRAMES)]


def blocks(length: int, maximum: int) -> list[slice]:
    """Cuts a length into as few blocks of at most `maximum` as possible, of nearly the same size."""
    count = -(-length // maximum)
    return [slice(length * n // count, length * (n + 1) // count) for n in range(count)]


def linear(library: Library, x: Tensor, weight: StoredMatrix, bias: np.ndarray | None) -> Share:
    """Returns a function for `NumpyNodes.add`, which computes a thread's tasks of a linear layer of x [T, in].

    Args:
        weight: [out, in], of a type that `takes` has accepted.
        bias: float32 [out].
    """
    todo = tasks(x.shape[0], len(weight.rows))

    def share(result: np.ndarray, number: int, threads: int) -> None:
        values, buffer = array_of(x), np.empty((MAX_OUTPUTS, weight.width), np.float32)
        for rows, outputs in todo[number::threads]:
            place = result[rows, outputs]
            np.matmul(values[rows], _unpacked(library, weight, outputs, buffer).T, out=place)
            if bias is not None:
                place += bias[outputs]

    return share


def _unpacked(library: Library, weight: StoredMatrix, rows: slice, buffer: np.ndarray) -> np.ndarray:
    """Returns some rows of a matrix in float32, in the buffer: [rows, in]. Those of an F32 matrix are not copied."""
    stored = weight.rows[rows]
    if weight.kind == "F32":
        return stored.view(np.float32)
    values = buffer[: len(stored)]
    getattr(library, UNPACK[weight.kind])(stored.ctypes.data, values.ctypes.data, values.size)
    return values
