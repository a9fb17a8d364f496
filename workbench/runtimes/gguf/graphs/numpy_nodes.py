"""Nodes of a ggml graph that numpy computes: functions that ggml lacks, or computes more slowly."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workbench.runtimes.gguf.graphs.ggml import F32, CustomCallback, Library, TensorStruct
from workbench.runtimes.gguf.graphs.weights import Tensor

Share = Callable[[np.ndarray, int, int], None]


class NumpyNodes:
    """The nodes of one graph that call back into Python, from ggml's threads.

    Args:
        threads: that share the work of a node.
    """

    def __init__(self, library: Library, context: int, threads: int):
        self._library, self._context, self._threads = library, context, threads
        self._callbacks: list[Any] = []  # ggml has their addresses only
        self._raised: list[BaseException] = []

    def add(self, inputs: Sequence[Tensor], shape: tuple[int, int], share: Share) -> int:
        """Returns the pointer of a new float32 tensor.

        Args:
            inputs: the tensors that must be computed before.
            share: fills a part of the tensor; it takes the array, the number of its thread, and of all threads.
        """

        def call(result: int, number: int, threads: int, _: Any) -> None:
            try:
                with np.errstate(all="ignore"):  # as in ggml, values may overflow without a word
                    share(array_of(Tensor(result, shape)), number, threads)
            except BaseException as error:  # an exception must not pass through ggml's C code
                self._raised.append(error)

        self._callbacks.append(CustomCallback(call))
        pointers = (ctypes.c_void_p * len(inputs))(*(each.pointer for each in inputs))
        height, width = shape
        pointer: int = self._library.custom_4d(
            self._context, F32, width, height, 1, 1, pointers, len(inputs), self._callbacks[-1], self._threads, None
        )
        return pointer

    def check(self) -> None:
        """Raises the first error of a node, after the graph was computed."""
        if self._raised:
            raise self._raised[0]

    def clear(self) -> None:
        """Frees the functions, which hold the graph and its arrays. So these are freed now and not later."""
        self._callbacks.clear()


def array_of(x: Tensor) -> np.ndarray:
    """Returns the values of a contiguous float32 tensor [T, width], not copied. It must have its place in memory."""
    height, width = x.shape
    values = (ctypes.c_float * (height * width)).from_address(TensorStruct.from_address(x.pointer).data)
    return np.ctypeslib.as_array(values).reshape(height, width)
