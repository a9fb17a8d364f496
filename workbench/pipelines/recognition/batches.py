"""How a network computes several chunks of speech: in parallel, each on its own processor, or padded in one pass.

Each runtime's network has the protocol of what it offers. `workbench.pipelines.recognition.padding` forms the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

Result = TypeVar("Result")

SECONDS_OF_LANE = 60.0  # of speech in a batch for each chunk that is computed at the same time
MAX_LANES = 8  # chunks at the same time: each needs memory of its own


@runtime_checkable
class RunsInParallel(Protocol):
    """A network whose runtime computes several chunks at the same time."""

    @property
    def lanes(self) -> int:
        """The most functions that run at the same time; 1 if there is one processor."""
        ...

    def run_parallel(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Calls functions that use this network at the same time; returns their results in their order."""
        ...


@runtime_checkable
class ComputesBatches(Protocol):
    """A network that computes several chunks in one pass."""

    @property
    def max_batch_seconds(self) -> float:
        """The most seconds of one pass, with the padding; 0 if the network takes one chunk at a time."""
        ...


def max_batch_seconds(network: object) -> float:
    """Returns the most seconds of speech in a batch, with the padding; 0 if the network takes one chunk at a time."""
    if isinstance(network, RunsInParallel):
        return SECONDS_OF_LANE * network.lanes if network.lanes > 1 else 0.0
    return network.max_batch_seconds if isinstance(network, ComputesBatches) else 0.0


def recognise_parallel(
    network: RunsInParallel, recognise: Callable[[np.ndarray], Result], chunks: Sequence[np.ndarray]
) -> list[Result]:
    """Returns the result of `recognise` for each chunk. The function must not share state except the network.

    The longest chunks start first, so that all processors finish at about the same time.
    """
    order = sorted(range(len(chunks)), key=lambda index: -len(chunks[index]))
    results = network.run_parallel([partial(recognise, chunks[index]) for index in order])
    by_index = dict(zip(order, results, strict=True))
    return [by_index[index] for index in range(len(chunks))]
