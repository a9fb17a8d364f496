"""Taps: show the stages of a network to the outside.

Every network calls `x = tap(stage, x)` at its named points and continues with the returned value. The default tap
returns the value and costs one call; a tap made by `tap_into` keeps copies. This file knows no network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from workbench.trace.recorder import Recorder

Tap = Callable[[str, torch.Tensor], torch.Tensor]


def no_tap(stage: str, value: torch.Tensor) -> torch.Tensor:
    """Returns the value unchanged."""
    return value


def tap_into(recorder: Recorder | None) -> Tap:
    """Returns a tap that gives the recorder a copy of each wanted stage, of the rows of the batch that it records.

    The tap returns the recorder's substituted value if there is one. Without a recorder, the tap does nothing.
    bfloat16, which numpy does not have, becomes float32.
    """
    if recorder is None:
        return no_tap

    def tap(stage: str, value: torch.Tensor) -> torch.Tensor:
        if not recorder.needs(stage):
            return value
        # Cloned at once, as a later in-place operation must not change the recorded values.
        rows = recorder.rows
        copy = value.detach()[: len(rows)].to("cpu", copy=True)
        arrays = list((copy.float() if copy.dtype == torch.bfloat16 else copy).numpy())
        results = [row.put(stage, array) for row, array in zip(rows, arrays, strict=True)]
        if all(result is array for result, array in zip(results, arrays, strict=True)):
            return value
        return torch.from_numpy(np.stack(results).astype(arrays[0].dtype)).to(value.device, value.dtype)

    return tap


def tap_output(module: nn.Module, stage: str, tap: Tap) -> Any:
    """Calls a tap with the output of a module of another library at each call; returns the hook, which has `remove`."""

    def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (tap(stage, output[0]), *output[1:])
        return tap(stage, output)

    return module.register_forward_hook(hook)
