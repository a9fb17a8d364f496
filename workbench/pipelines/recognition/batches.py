"""How a network computes several chunks of speech: joined and in parallel, or padded in one pass.

Each runtime's network has the protocol of what it offers. `workbench.pipelines.recognition.padding` forms the batches.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

Result = TypeVar("Result")

SECONDS_OF_LANE = 60.0  # of speech in a batch for each chunk that is computed at the same time
MAX_LANES = 8  # passes at the same time: each needs memory of its own
JOINED_FRAMES = 256  # in a pass; with more, products of matrices are hardly faster, and more memory is needed


@runtime_checkable
class RunsInParallel(Protocol):
    """A network whose runtime computes several passes at the same time, and several chunks joined in one pass.

    Joined chunks are one behind the other, without padding. The result of a chunk does not depend on the others.
    """

    @property
    def lanes(self) -> int:
        """The most functions that run at the same time; 1 if there is one processor."""
        ...

    def run_parallel(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Calls functions that use this network at the same time; returns their results in their order."""
        ...

    def arithmetic_of(self, frames: int) -> Hashable:
        """Returns what the arithmetic for a chunk of so many frames depends on.

        Only chunks with equal values may be joined, so that each is computed as it is alone.
        """
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


def recognise_joined(
    network: RunsInParallel,
    chunks: Sequence[np.ndarray],
    frames_of: Callable[[int], int],
    recognise: Callable[[list[np.ndarray]], list[Result]],
) -> list[Result]:
    """Returns the result of each chunk.

    Args:
        frames_of: returns the frames of a chunk with so many samples.
        recognise: returns the results of chunks that are joined; it must not share state except the network.
    """
    groups = joined_groups([frames_of(len(each)) for each in chunks], network.lanes, network.arithmetic_of)
    parts = network.run_parallel([partial(recognise, [chunks[index] for index in group]) for group in groups])
    results = {
        index: result
        for group, part in zip(groups, parts, strict=True)
        for index, result in zip(group, part, strict=True)
    }
    return [results[index] for index in range(len(chunks))]


def joined_groups(frames: Sequence[int], lanes: int, arithmetic_of: Callable[[int], Hashable]) -> list[list[int]]:
    """Returns the indices of the chunks of each pass, the longest pass first.

    The passes have about `JOINED_FRAMES` frames, or fewer so that all lanes have work.
    """
    by_arithmetic: dict[Hashable, list[int]] = defaultdict(list)
    for index in sorted(range(len(frames)), key=lambda index: -frames[index]):
        by_arithmetic[arithmetic_of(frames[index])].append(index)
    groups: list[tuple[int, list[int]]] = []
    for indices in by_arithmetic.values():
        total = sum(frames[index] for index in indices)
        count = min(len(indices), lanes * max(1, math.ceil(total / (JOINED_FRAMES * lanes))))
        loads, parts = [0] * count, [list[int]() for _ in range(count)]
        for index in indices:  # each to the shortest pass
            shortest = min(range(count), key=lambda number: (loads[number], len(parts[number])))
            loads[shortest] += frames[index]
            parts[shortest].append(index)
        groups += zip(loads, parts, strict=True)
    return [group for _, group in sorted(groups, key=lambda group: -group[0])]
