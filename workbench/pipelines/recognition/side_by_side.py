"""Computes several chunks of speech at the same time, each on its own processor, if the runtime offers that.

A runtime that pads chunks to one pass has a protocol of its own (see `workbench.pipelines.recognition.padding`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

Result = TypeVar("Result")

SECONDS_OF_LANE = 60.0  # of speech in a batch for each chunk that is computed at the same time
MOST_LANES = 8  # chunks at the same time: each needs memory of its own


@runtime_checkable
class SideBySide(Protocol):
    """A network whose runtime computes several chunks at the same time."""

    @property
    def lanes(self) -> int:
        """The most functions that run at the same time; 1 if there is one processor."""
        ...

    def side_by_side(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Calls functions that use this network at the same time; returns their results in their order."""
        ...


def seconds_side_by_side(network: SideBySide) -> float:
    """Returns the most seconds of a batch; 0 if chunks run one after another."""
    return SECONDS_OF_LANE * network.lanes if network.lanes > 1 else 0.0


def each_side_by_side(
    network: SideBySide, recognise: Callable[[np.ndarray], Result], chunks: Sequence[np.ndarray]
) -> list[Result]:
    """Returns the result of `recognise` for each chunk. The function must not share state except the network.

    The longest chunks start first, so that all processors finish at about the same time.
    """
    order = sorted(range(len(chunks)), key=lambda place: -len(chunks[place]))
    results = network.side_by_side([partial(recognise, chunks[place]) for place in order])
    by_place = dict(zip(order, results, strict=True))
    return [by_place[place] for place in range(len(chunks))]
