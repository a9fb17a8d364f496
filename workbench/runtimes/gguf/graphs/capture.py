"""Computes a ggml graph and shows chosen tensors as soon as they are computed, before later ones reuse their memory.

ggml plans the memory of a whole graph, and a tensor that must exist at the end occupies its memory all the time. All
stages of a long recording together would need a lot of memory. With node-by-node computation, each stage is read as
soon as it is computed, and its memory is then reused.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any

from workbench.runtimes.gguf.graphs.ggml import EvalCallback, Library


class TensorCapture:
    """The memory and the order of one computation; a `with` block in which the results are read.

    Args:
        backend: the backend that computes.
        nodes: at least the number of the graph's tensors.
    """

    def __init__(self, library: Library, backend: Any, nodes: int):
        self._library = library
        backends = (ctypes.c_void_p * 1)(backend)
        self._scheduler = library.backend_sched_new(backends, None, 1, nodes, False, False)

    def __enter__(self) -> TensorCapture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._library.backend_sched_free(self._scheduler)

    def allocate(self, graph: Any) -> bool:
        """Gives every tensor of the graph its place; returns whether there was enough memory."""
        placed: bool = self._library.backend_sched_alloc_graph(self._scheduler, graph)
        return placed

    def compute(self, graph: Any, pointers: Collection[int], see: Callable[[int], None]) -> int:
        """Computes the graph and calls `see` with each of the pointers when the values of its tensor are computed.

        Returns ggml's status. An exception in `see` ends the computation and is raised again.
        """
        errors: list[BaseException] = []

        def watch_tensor(pointer: int, ask: bool, _: Any) -> bool:
            if ask or pointer not in pointers:
                return pointer in pointers or not ask
            try:
                see(pointer)
            except BaseException as error:  # an exception must not pass through ggml's C code
                errors.append(error)
            return not errors

        callback = EvalCallback(watch_tensor)
        self._library.backend_sched_set_eval_callback(self._scheduler, callback, None)
        status: int = self._library.backend_sched_graph_compute(self._scheduler, graph)
        if errors:
            raise errors[0]
        return status
