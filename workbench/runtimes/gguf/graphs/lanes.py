"""Computes graphs one at a time with several threads, or several graphs side by side with one processor each.

A graph of a short recording gains little from many threads, because they wait for each other after every operation.
Several recordings side by side use all processors. The lanes share the weights; each lane has its own memory for its
computations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from workbench.pipelines.recognition.batches import MAX_LANES
from workbench.runtimes.gguf.graphs.ggml import Library

Result = TypeVar("Result")


class Lane:
    """A backend of ggml with its threads, and the memory of its computations."""

    def __init__(self, library: Library, threads: int):
        self.threads = threads
        self.library = library
        self.backend = library.backend_cpu_init()
        library.backend_cpu_set_n_threads(self.backend, threads)
        self.allocator = library.gallocr_new(library.backend_get_default_buffer_type(self.backend))

    def close(self) -> None:
        """Frees the memory."""
        self.library.gallocr_free(self.allocator)
        self.library.backend_free(self.backend)


class Lanes:
    """Lanes of one thread each, which are made when they are needed.

    Args:
        count: the most at a time.
    """

    def __init__(self, library: Library, count: int):
        self._library = library
        self.count = min(count, MAX_LANES)
        self._free: list[Lane] = []
        self._thread_local = threading.local()

    @property
    def current(self) -> Lane | None:
        """The lane of the calling thread, if it is inside `call`."""
        return getattr(self._thread_local, "lane", None)

    def call(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """See `workbench.runtimes.gguf.graphs.graph_runner.GraphRunner.run_parallel`."""
        count = min(self.count, len(tasks))
        if count < 2:
            return [task() for task in tasks]
        while len(self._free) < count:
            self._free.append(Lane(self._library, 1))
        with ThreadPoolExecutor(count, thread_name_prefix="lane") as pool:
            running = [pool.submit(self._call_on_lane, task) for task in tasks]
        return [each.result() for each in running]

    def _call_on_lane(self, task: Callable[[], Result]) -> Result:
        self._thread_local.lane = self._free.pop()
        try:
            return task()
        finally:
            self._free.append(self._thread_local.lane)
            self._thread_local.lane = None

    def close(self) -> None:
        """Frees the memory."""
        while self._free:
            self._free.pop().close()
