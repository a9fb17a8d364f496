"""The stages of one graph: which tensors hold them, and where each tensor's values belong in its stage.

A tensor holds a whole stage, or a block of one that would be too large to compute at once. This file knows no networks
and no operations of ggml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from workbench.runtimes.gguf.graphs.weights import Tensor
from workbench.trace.recorder import Recorder
from workbench.trace.spill import release

Place = tuple[slice, ...]


@dataclass(frozen=True)
class Block:
    """A tensor with values of a stage."""

    stage: str
    tensor: Tensor
    shape: tuple[int, ...]  # of the whole stage
    place: Place | None = None  # of the values in the stage; None if the tensor holds the whole stage
    consumer: Tensor | None = None  # reads the tensor, so that ggml frees its memory afterwards


class Taps:
    """The wanted stages of one graph.

    Args:
        recorder: None if no stage is wanted.
    """

    def __init__(self, recorder: Recorder | None):
        self._recorder = recorder
        self.blocks: list[Block] = []

    @property
    def is_recording(self) -> bool:
        """Whether stages are recorded."""
        return self._recorder is not None

    def wanted(self, stage: str) -> bool:
        """Returns whether a stage is recorded."""
        return self._recorder is not None and self._recorder.wanted(stage)

    def needs(self, stage: str) -> bool:
        """Returns whether a stage is recorded or substituted."""
        return self._recorder is not None and self._recorder.needs(stage)

    def given(self, stage: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Returns the values that a trace substitutes for a stage, or None; see `Recorder.given`."""
        return None if self._recorder is None else self._recorder.given(stage, shape)

    def tensors(self) -> list[Tensor]:
        """Returns the tensors that must be computed, in the order of the stages."""
        return [x for block in self.blocks for x in (block.tensor, block.consumer) if x is not None]

    def watch(
        self, inputs: Mapping[int, np.ndarray], read: Callable[[Tensor], np.ndarray]
    ) -> tuple[Mapping[int, list[Block]], Callable[[int], None]]:
        """Returns the blocks to read during the computation by the tensor's pointer, and the function that reads those
        of a pointer.

        Args:
            inputs: the arrays of the graph's inputs by their pointers; stages that are inputs are recorded at once.
            read: returns a computed tensor's values.
        """
        waiting: dict[int, list[Block]] = {}
        for block in self.blocks:
            if block.tensor.pointer in inputs:
                self._record(block, inputs[block.tensor.pointer])
            else:
                waiting.setdefault(block.tensor.pointer, []).append(block)

        def see(pointer: int) -> None:
            for block in waiting[pointer]:
                self._record(block, read(block.tensor))

        return waiting, see

    def _record(self, block: Block, values: np.ndarray) -> None:
        assert self._recorder is not None
        if block.place is None:
            self._recorder.put(block.stage, values.reshape(block.shape))
            return
        array = self._recorder.stages.get(block.stage)
        if array is None:
            array = self._recorder.allocate(block.stage, block.shape)
        target = array[block.place]
        target[...] = values[tuple(slice(size) for size in target.shape)]
        release(array)
