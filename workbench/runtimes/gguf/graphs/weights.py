"""The tensors of a GGUF file for ggml: mapped from the file, and unpacked or repacked if needed.

Every look-up states the shape that the network needs. A missing or misshapen tensor raises `BadInput`; ggml itself
would end the process.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.graphs.amx import layouts
from workbench.runtimes.gguf.graphs.ggml import F32, TYPES, USAGE_WEIGHTS, InitParams, Library
from workbench.runtimes.gguf.graphs.repacking import Repacking

ALIGNMENT = 32  # bytes: alignment of a tensor that ggml computes with


@dataclass(frozen=True, slots=True)
class Tensor:
    """A ggml tensor; its shape is in numpy's order, slowest dimension first."""

    pointer: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """A matrix [out, in] as its file stores it."""

    kind: str  # the type: F32, F16, Q8_0, ...
    rows: np.ndarray  # uint8 [out, bytes of a row], memory-mapped and read-only
    width: int  # in


class Weights:
    """The tensors of one file; each is made for ggml on its first use.

    Matrices stay in the file's memory map, in their own type; vectors and kernels of other types than float32 are
    converted into separate memory.

    Args:
        repack: put a matrix into a faster layout if ggml has one on this processor.
    """

    def __init__(self, library: Library, file: GgufFile, repack: bool = True):
        self.file = file
        self._library = library
        self._tensors: dict[tuple[str, int, int], Tensor] = {}
        self._lock = threading.Lock()  # graphs may be built side by side
        self._arrays: list[np.ndarray] = []  # memory that tensors point into
        self._buffers: list[int] = []
        self._in_layouts: set[str] = set()  # names of matrices with rows in one of the processor's layouts
        # Room for each tensor as a whole, and for the parts of some tensors.
        size = library.tensor_overhead() * (5 * len(file.tensors) + 8)
        self._context = library.init(InitParams(size, None, True))
        self._map = file.mapped()
        self._mapped = self._buffer(self._map.ctypes.data, self._map.nbytes)
        self._repacking = Repacking(library, layouts()) if repack else None

    def matrix(self, name: str, shape: tuple[int, int], rows: slice | None = None) -> Tensor:
        """Returns a matrix [out, in] in the file's own type, or some of its rows."""
        info = self.file.expect(name, shape)
        if info.type not in TYPES:
            raise BadInput(
                f"{self.file.path.name}: tensor {name} is of type {info.type}, which ggml cannot compute with"
            )
        first, last, _ = (rows or slice(None)).indices(shape[0])
        key = (name, first, last)
        with self._lock:
            if key not in self._tensors:
                row_bytes = info.nbytes // shape[0]
                start, count = info.offset + first * row_bytes, (last - first) * row_bytes
                part = TYPES[info.type], (last - first, shape[1]), start, count
                repacked = self._repacked(*part)
                if repacked:
                    self._in_layouts.add(name)
                self._tensors[key] = repacked or self._unchanged(*part)
            return self._tensors[key]

    def stored(self, name: str, shape: tuple[int, int], rows: slice | None = None) -> StoredMatrix | None:
        """Returns a matrix [out, in], or some of its rows, as it is in the file.

        Returns None if ggml computes with some of the matrix in a layout of the processor, which is faster. The rest
        must then have the same arithmetic.
        """
        info = self.file.expect(name, shape)
        self.matrix(name, shape, rows)
        if info.offset % ALIGNMENT or name in self._in_layouts:
            return None
        return StoredMatrix(info.type, self.file.raw(name).reshape(shape[0], -1)[rows or slice(None)], shape[1])

    def vector(self, name: str, size: int, part: slice | None = None) -> Tensor:
        """Returns a vector [size] in float32, or a part of it."""
        return self.array(name, (size,), part)

    def array(self, name: str, shape: tuple[int, ...], part: slice | None = None) -> Tensor:
        """Returns a tensor in float32, or a part of its first dimension."""
        info = self.file.expect(name, shape)
        first, last, _ = (part or slice(None)).indices(shape[0])
        key = (f"{name} as float32", first, last)
        with self._lock:
            if key not in self._tensors:
                part_shape = (last - first, *shape[1:])
                if info.type == "F32" and info.offset % ALIGNMENT == 0:
                    each = info.nbytes // shape[0]
                    self._tensors[key] = self._mapped_at(F32, part_shape, info.offset + first * each)
                else:
                    self._tensors[key] = self.keep(self.file.array(name)[first:last])
            return self._tensors[key]

    def arranged(self, name: str, shape: tuple[int, ...], arrange: Callable[[np.ndarray], np.ndarray]) -> Tensor:
        """Returns a float32 tensor in separate memory, with its values rearranged by `arrange`; this is done once.

        Args:
            arrange: a function of a module, or an object that its `repr` describes.
        """
        self.file.expect(name, shape)
        key = (f"{name} by {arrange!r}", 0, 0)
        with self._lock:
            if key not in self._tensors:
                self._tensors[key] = self.keep(arrange(self.file.array(name).reshape(shape)))
            return self._tensors[key]

    def keep(self, values: np.ndarray) -> Tensor:
        """Returns an array as a float32 tensor, and holds its memory."""
        return self._copy_tensor(F32, values.shape, np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8))

    def _copy_tensor(self, kind: int, shape: tuple[int, ...], values: np.ndarray) -> Tensor:
        """Returns a tensor in separate aligned memory, from its bytes."""
        memory = np.empty(values.nbytes + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        memory[start : start + values.nbytes] = values
        self._arrays.append(memory)
        tensor, address = self._new(kind, shape), memory.ctypes.data + start
        self._library.backend_tensor_alloc(self._buffer(address, values.nbytes), tensor.pointer, address)
        return tensor

    def _unchanged(self, kind: int, shape: tuple[int, int], start: int, count: int) -> Tensor:
        if start % ALIGNMENT == 0:
            return self._mapped_at(kind, shape, start)
        return self._copy_tensor(kind, shape, self._map[start : start + count])

    def _mapped_at(self, kind: int, shape: tuple[int, ...], start: int) -> Tensor:
        tensor = self._new(kind, shape)
        self._library.backend_tensor_alloc(self._mapped, tensor.pointer, self._map.ctypes.data + start)
        return tensor

    def _repacked(self, kind: int, shape: tuple[int, int], start: int, count: int) -> Tensor | None:
        """Returns the matrix in the processor's own layout; None if ggml has none for its type and shape."""
        if self._repacking is None:
            return None
        tensor = self._new(kind, shape)
        buffer = self._repacking.buffer(tensor.pointer, self._map.ctypes.data + start, count)
        if not buffer:
            return None
        self.file.let_go(start, count)
        self._buffers.append(buffer)
        return tensor

    def _new(self, kind: int, shape: tuple[int, ...]) -> Tensor:
        sizes = (ctypes.c_int64 * len(shape))(*reversed(shape))
        return Tensor(self._library.new_tensor(self._context, kind, len(shape), sizes), shape)

    def _buffer(self, address: int, size: int) -> int:
        buffer: int = self._library.backend_cpu_buffer_from_ptr(address, size)
        self._library.backend_buffer_set_usage(buffer, USAGE_WEIGHTS)
        self._buffers.append(buffer)
        return buffer

    def close(self) -> None:
        """Frees everything. May be called again."""
        for buffer in self._buffers:
            self._library.backend_buffer_free(buffer)
        self._buffers.clear()
        if self._context:
            self._library.free(self._context)
            self._context = 0
        self._tensors.clear()
        self._arrays.clear()
        self._map = self._map[:0]


class Scope:
    """The weights under a prefix: `scope / "encoder" / "norm1"`."""

    def __init__(self, weights: Weights, prefix: str = ""):
        self.weights = weights
        self.prefix = prefix

    def __truediv__(self, name: str | int) -> Scope:
        return Scope(self.weights, f"{self.prefix}{name}.")

    def matrix(self, name: str, shape: tuple[int, int], rows: slice | None = None) -> Tensor:
        """See `Weights.matrix`."""
        return self.weights.matrix(self.prefix + name, shape, rows)

    def kind(self, name: str, shape: tuple[int, int]) -> str:
        """Returns the type of a matrix in the file: F32, F16, Q8_0, ..."""
        return self.weights.file.expect(self.prefix + name, shape).type

    def stored(self, name: str, shape: tuple[int, int], rows: slice | None = None) -> StoredMatrix | None:
        """See `Weights.stored`."""
        return self.weights.stored(self.prefix + name, shape, rows)

    def vector(self, name: str, size: int, part: slice | None = None) -> Tensor:
        """See `Weights.vector`."""
        return self.weights.vector(self.prefix + name, size, part)

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """See `Weights.array`."""
        return self.weights.array(self.prefix + name, shape)

    def arranged(self, name: str, shape: tuple[int, ...], arrange: Callable[[np.ndarray], np.ndarray]) -> Tensor:
        """See `Weights.arranged`."""
        return self.weights.arranged(self.prefix + name, shape, arrange)

    def values(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Returns the values of a tensor for numpy, float32 in this shape; those of an F32 tensor are read-only."""
        file = self.weights.file
        file.expect(self.prefix + name, shape)
        return file.array(self.prefix + name).reshape(shape)

    def has(self, name: str) -> bool:
        """Returns whether the file has a tensor of that name."""
        return self.prefix + name in self.weights.file.tensors
