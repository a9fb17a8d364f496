"""The process that tests ggml's matrix units: multiplies a q8_0 matrix in a buffer of type AMX.

`amx` starts it with the files of two libraries, libggml-base and libggml-cpu. It prints one of `ANSWERS`, or crashes.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys

import numpy as np

from workbench.runtimes.gguf.graphs.ggml import F32, SUCCESS, TYPES, InitParams, Library
from workbench.runtimes.gguf.graphs.repacking import AMX, Repacking

WORKS, WRONG, NONE = "works", "wrong", "none"  # none: this build of ggml does not use the units
ANSWERS = (WORKS, WRONG, NONE)
BLOCK = 32  # values of q8_0 that share a scale
# Two tiles in each direction, the last one partly filled, so that both of ggml's kernels run and each thread configures
# its units.
OUT, IN, ROWS = 64, 64, 40
THREADS = 2
NODES = 8


def main() -> int:
    """Tests the libraries named on the command line; returns the exit status."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows has no resource module
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its crash is expected, so no core file
    base, cpu = (ctypes.CDLL(path) for path in sys.argv[1:3])
    sys.stdout.write(try_out(Library(base, cpu)))
    return 0


def try_out(library: Library) -> str:
    """Returns one of `ANSWERS`. A fault in the library ends the process."""
    repacking = Repacking(library, [AMX])
    if not repacking.is_possible:
        return NONE
    weights = (np.arange(OUT * IN).reshape(OUT, IN) * 37 % 255 - 127).astype(np.int8)
    inputs = (np.arange(ROWS * IN).reshape(ROWS, IN) * 53 % 201 - 100).astype(np.float32)
    inputs[:, ::BLOCK] = 127.0  # the largest value of each block: its scale is 1, so no value is rounded
    product = _multiply(library, repacking, _as_q8_0(weights), inputs)
    exact = inputs.astype(np.float64) @ weights.T.astype(np.float64)
    return WORKS if np.allclose(product, exact, rtol=1e-4, atol=1.0) else WRONG


def _as_q8_0(values: np.ndarray) -> np.ndarray:
    """Returns whole numbers from -127 to 127 as the bytes of q8_0: blocks with a float16 scale of 1 and the values."""
    blocks = values.reshape(-1, BLOCK).view(np.uint8)
    scales = np.ones((len(blocks), 1), np.float16).view(np.uint8)
    return np.ascontiguousarray(np.concatenate([scales, blocks], axis=1))


def _multiply(library: Library, repacking: Repacking, weights: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Returns inputs @ weights.T [ROWS, OUT] in float32, computed by ggml."""
    size = 4 * NODES * library.tensor_overhead() + library.graph_overhead_custom(NODES, False)
    context = library.init(InitParams(size, None, True))
    matrix = library.new_tensor(context, TYPES["Q8_0"], 2, (ctypes.c_int64 * 2)(IN, OUT))
    rows = library.new_tensor(context, F32, 2, (ctypes.c_int64 * 2)(IN, ROWS))
    if not repacking.buffer(matrix, weights.ctypes.data, weights.nbytes):
        raise MemoryError("ggml has no room for a matrix of 64 rows")
    product = library.mul_mat(context, matrix, rows)
    library.set_input(rows)
    library.set_output(product)
    graph = library.new_graph_custom(context, NODES, False)
    library.build_forward_expand(graph, product)
    backend = library.backend_cpu_init()
    library.backend_cpu_set_n_threads(backend, THREADS)
    allocator = library.gallocr_new(library.backend_get_default_buffer_type(backend))
    library.gallocr_alloc_graph(allocator, graph)
    library.backend_tensor_set(rows, inputs.ctypes.data, 0, inputs.nbytes)
    values = np.full((ROWS, OUT), np.nan, np.float32)
    if library.backend_graph_compute(backend, graph) == SUCCESS:
        library.backend_tensor_get(product, values.ctypes.data, 0, values.nbytes)
    return values  # nothing is freed, as the process ends now


if __name__ == "__main__":
    sys.exit(main())
