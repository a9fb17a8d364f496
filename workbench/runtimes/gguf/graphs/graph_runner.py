"""Keeps what graphs of ggml share: threads, weights and the compute buffer, as long as a model is open.

A `GraphRunner` makes a `Graph` for each computation. It reuses the memory of one graph for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.graphs import matrix_products
from workbench.runtimes.gguf.graphs.ggml import load_library
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.lanes import Lane, Lanes
from workbench.runtimes.gguf.graphs.shapes import GraphFull
from workbench.runtimes.gguf.graphs.weights import Tensor, Weights
from workbench.system.processors import available_processors, default_threads
from workbench.trace.recorder import Recorder

NODES = 4096  # at first; a graph that needs more nodes is built again with more room
Outputs = TypeVar("Outputs", bound=Mapping[str, Tensor])
Result = TypeVar("Result")


class GraphRunner:
    """Computes graphs over the weights of one file.

    Args:
        threads: of the computation, and graphs side by side at most; None for one per processor that this process may
            use, or one in a graph of a small model.
        repack: put matrices into the processor's own layout if ggml has one.

    Raises `BadInput` if the file holds values that are not finite.
    """

    def __init__(self, file: GgufFile, threads: int | None = None, repack: bool = True):
        file.check_finite()
        self.library = load_library()
        self._main_lane: Lane | None = Lane(self.library, threads or default_threads(file.nbytes))
        self._lanes = Lanes(self.library, threads or available_processors())
        self.weights = Weights(self.library, file, repack)
        self._kinds = {info.type for info in file.tensors.values()}
        self._nodes = NODES

    def run(self, build: Callable[[Graph], Outputs], recorder: Recorder | None = None) -> dict[str, np.ndarray]:
        """Computes the outputs of `build` and returns their arrays; tapped stages go to the recorder.

        Raises `BadInput` after `close`.
        """
        self._check_open()
        return self._with_enough_nodes(recorder, lambda graph: graph.compute(build(graph)))

    @property
    def lane(self) -> Lane:
        """The lane of this thread: with all threads, or with one thread inside `run_parallel`."""
        lane = self._lanes.current or self._main_lane
        assert lane is not None, "closed"
        return lane

    @property
    def lanes(self) -> int:
        """How many graphs `run_parallel` computes at a time."""
        return self._lanes.count

    def run_parallel(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Calls functions that compute graphs here, as many at a time as there are threads, each with one thread.

        Every tensor must have been in a graph before (see `check`). Returns the results in the functions' order, equal
        to those of one call after another. Raises the first error, after all have ended.
        """
        self._check_open()
        return self._lanes.call(tasks)

    def arithmetic_of(self, frames: int) -> Hashable:
        """Returns what the arithmetic of linear layers depends on for so many frames: the types that numpy takes."""
        return frozenset(kind for kind in self._kinds if matrix_products.takes(kind, frames))

    def _check_open(self) -> None:
        if self._main_lane is None:
            raise BadInput(f"{self.weights.file.name} is closed; open it again")

    def check(self, build: Callable[[Graph], Outputs]) -> None:
        """Builds the graph without computing it; raises `BadInput` for missing or misshapen weights."""
        self._with_enough_nodes(None, build)

    def _with_enough_nodes(self, recorder: Recorder | None, use: Callable[[Graph], Result]) -> Result:
        """Calls `use` with a graph and returns its result; if the graph is full, tries again with twice the room."""
        while True:
            with Graph(self.lane, self.weights, self._nodes, recorder) as graph:
                try:
                    return use(graph)
                except GraphFull:
                    self._nodes *= 2

    def close(self) -> None:
        """Frees all memory. May be called again."""
        if self._main_lane is not None:
            self.weights.close()
            self._lanes.close()
            self._main_lane.close()
            self._main_lane = None

    def __del__(self) -> None:
        if getattr(self, "_main_lane", None) is not None and hasattr(self, "weights"):
            self.close()
