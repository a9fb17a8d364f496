"""Puts matrices into the processor's own layouts, with which ggml computes faster, for types and shapes that have one.

ggml has two: `AMX` for the matrix units of Intel's processors, and `CPU_REPACK` for vector units.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from workbench.runtimes.gguf.graphs.ggml import TYPES, USAGE_WEIGHTS, Library, TensorStruct

AMX, VECTORS = b"AMX", b"CPU_REPACK"
LAYOUTS = (AMX, VECTORS)
AMX_OUT, AMX_IN = 32, 16  # its outputs and inputs must be multiples of these
AMX_LEAST_IN = (
    64  # ggml 0.25 computes wrong numbers for matrices of 32 inputs, which are a single block of a quantised type
)
AMX_TYPES = tuple(TYPES[name] for name in ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"))
F16 = TYPES["F16"]


class Repacking:
    """Repacks weights if the build of ggml can; otherwise it does nothing.

    Args:
        layouts: the names of buffer types in ggml; the first that has a layout for a matrix takes it.
        halves: put f16 matrices into the layout of the matrix units too. There ggml multiplies them with float32
            inputs, and elsewhere with inputs rounded to f16. So the parts of one matrix must not be in both.
    """

    def __init__(self, library: Library, layouts: Sequence[bytes] = LAYOUTS, halves: bool = False):
        self._library = library
        self._amx_types = (*AMX_TYPES, F16) if halves else AMX_TYPES
        self._types = {name: found for name in layouts if (found := _buffer_type(library, name))}

    @property
    def is_possible(self) -> bool:
        """Whether this build of ggml has one of the layouts on this processor."""
        return bool(self._types)

    def buffer(self, pointer: int, address: int, size: int) -> int | None:
        """Repacks the values at an address into a tensor; returns their buffer, which the caller must free.

        Returns None, and leaves the tensor unchanged, if ggml has no layout for it.
        """
        tensor = TensorStruct.from_address(pointer)
        for name, kind in self._types.items():
            if (name != AMX or self._fits_amx(tensor)) and (buffer := self._repacked(kind, pointer, address, size)):
                return buffer
        return None

    def _fits_amx(self, tensor: TensorStruct) -> bool:
        """Returns whether the units compute with a matrix. ggml takes others too, and ends the process for them."""
        inputs, outputs, *outer = tensor.ne
        return (
            tensor.type in self._amx_types
            and inputs >= AMX_LEAST_IN
            and inputs % AMX_IN == outputs % AMX_OUT == 0
            and outer == [1, 1]
        )

    def _repacked(self, kind: int, pointer: int, address: int, size: int) -> int | None:
        library, tensor = self._library, TensorStruct.from_address(pointer)
        original_place = tensor.buffer, tensor.data
        buffer: int = library.backend_buft_alloc_buffer(kind, library.backend_buft_get_alloc_size(kind, pointer))
        if not buffer:
            return None
        tensor.buffer = tensor.data = None
        library.backend_tensor_alloc(buffer, pointer, library.backend_buffer_get_base(buffer))
        if not tensor.extra:  # ggml notes here how it repacks; writing without that note would end the process
            tensor.buffer, tensor.data = original_place
            library.backend_buffer_free(buffer)
            return None
        library.backend_buffer_set_usage(buffer, USAGE_WEIGHTS)
        library.backend_tensor_set(pointer, address, 0, size)
        return buffer


def _buffer_type(library: Library, name: bytes) -> int | None:
    """Returns ggml's buffer type of that name; None if this build has none."""
    registered = library.backend_cpu_reg()
    address = library.backend_reg_get_proc_address(registered, b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return None
    extra_types = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)
    buffer_types = extra_types(library.backend_reg_dev_get(registered, 0))
    number = 0
    while buffer_types and buffer_types[number]:
        if library.backend_buft_name(buffer_types[number]) == name:
            return buffer_types[number]
        number += 1
    return None
