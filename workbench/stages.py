"""Keeps the stages of a pass that a trace asks for, whatever computes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class Recorder:
    """The wanted stages of a pass, in the order in which they came.

    Args:
        wanted: tells by name whether to keep a stage; asked before a stage that costs something is computed or copied.
    """

    def __init__(self, wanted: Callable[[str], bool]):
        self.wanted = wanted
        self.stages: dict[str, np.ndarray] = {}

    def put(self, stage: str, value: np.ndarray) -> None:
        """Keeps a wanted stage as it is, without a batch dimension; who goes on to change the array puts a copy."""
        if self.wanted(stage):
            self.stages[stage] = value
