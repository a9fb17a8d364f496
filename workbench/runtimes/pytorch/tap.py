"""Taps: how the stages of a network are seen from outside.

Every network calls `x = tap(stage, x)` at its named points and goes on with what it gets back. The default does
nothing and costs a call; `Recorder` keeps copies. This file knows no network.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

Tap = Callable[[str, torch.Tensor], torch.Tensor]


def no_tap(stage: str, value: torch.Tensor) -> torch.Tensor:
    """Passes the value on."""
    return value


class Recorder:
    """A tap that keeps a copy of each wanted stage, the batch dimension of one dropped.

    Args:
        wanted: tells by name whether to keep a stage.
    """

    def __init__(self, wanted: Callable[[str], bool]):
        self.wanted = wanted
        self.stages: dict[str, np.ndarray] = {}

    def __call__(self, stage: str, value: torch.Tensor) -> torch.Tensor:
        if self.wanted(stage):
            # Cloned at once: a later operation in place must not change what was seen.
            copy = value.detach().to("cpu", copy=True)
            self.stages[stage] = (copy.float() if copy.dtype == torch.bfloat16 else copy)[0].numpy()
        return value

    def put(self, stage: str, value: np.ndarray) -> None:
        """Records a stage that was computed outside torch."""
        if self.wanted(stage):
            self.stages[stage] = value
