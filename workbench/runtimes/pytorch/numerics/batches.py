"""Several chunks of speech in one pass of a network: features padded to the longest, and how much at once.

This file knows no network.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

ON_CPU = 60.0  # seconds: hundreds of rows already fill the kernels, and the values of a layer stay in the cache
ON_GPU = 600.0


def max_batch_seconds(device: torch.device) -> float:
    """Returns how many seconds of speech a pass should have at most, with their padding."""
    return ON_CPU if device.type == "cpu" else ON_GPU


def padded_rows(
    features: Sequence[np.ndarray], device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """Returns features [B, T, width] padded with zeros, and the frames of each row [B]; None if all rows are full."""
    rows = [torch.from_numpy(row).to(dtype) for row in features]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
    lengths = [len(row) for row in rows]
    return padded, None if len({*lengths}) == 1 else torch.tensor(lengths, device=device)
