"""Puts matrices into the processor's own layout, with which ggml computes faster, for types and shapes that have
one.
"""

from __future__ import annotations

import ctypes

from workbench.runtimes.gguf.ggml import USAGE_WEIGHTS, Library, TensorStruct


class Repacking:
    """Repacks weights if the build of ggml can; otherwise it does nothing.

    Args:
        kind: the name of the layout's buffer type in ggml.
    """

    def __init__(self, library: Library, kind: bytes = b"CPU_REPACK"):
        self._library = library
        self._type = _buffer_type(library, kind)

    @property
    def possible(self) -> bool:
        """Whether this build of ggml has the layout on this processor."""
        return self._type is not None

    def buffer(self, pointer: int, address: int, size: int) -> int | None:
        """Repacks the values at an address into a tensor; returns their buffer, which the caller must free.

        Returns None and leaves the tensor unchanged if ggml has no layout for it.
        """
        if not self._type:
            return None
        library, tensor = self._library, TensorStruct.from_address(pointer)
        plain = tensor.buffer, tensor.data
        buffer: int = library.backend_buft_alloc_buffer(
            self._type, library.backend_buft_get_alloc_size(self._type, pointer)
        )
        if not buffer:
            return None
        tensor.buffer = tensor.data = None
        library.backend_tensor_alloc(buffer, pointer, library.backend_buffer_get_base(buffer))
        if not tensor.extra:  # ggml notes here how it repacks; writing without that note would end the process
            tensor.buffer, tensor.data = plain
            library.backend_buffer_free(buffer)
            return None
        library.backend_buffer_set_usage(buffer, USAGE_WEIGHTS)
        library.backend_tensor_set(pointer, address, 0, size)
        return buffer


def _buffer_type(library: Library, kind: bytes) -> int | None:
    """Returns ggml's buffer type of that name; None if this build has none."""
    registered = library.backend_cpu_reg()
    address = library.backend_reg_get_proc_address(registered, b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return None
    extra_types = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)
    found = extra_types(library.backend_reg_dev_get(registered, 0))
    number = 0
    while found and found[number]:
        if library.backend_buft_name(found[number]) == kind:
            return found[number]
        number += 1
    return None
