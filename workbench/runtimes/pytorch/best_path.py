"""CTC's best paths, found on the device that holds the logits.

The logits of a minute of speech in a vocabulary of 25,000 tokens take 100 MB. A GPU needs less time to find the best
path than to copy them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workbench.core.finite import check_logits
from workbench.decoding.ctc import BestPath


def best_paths(logits: Tensor, frames: list[int], blank: int, banned: int | None) -> list[BestPath]:
    """Returns the best path of each row of logits [B, T, V].

    Args:
        frames: how many frames of each row are not padding.
        blank: the id of the blank.
        banned: an id that is not to be written, or None.

    Raises `NotFinite` for logits that are NaN.
    """
    ids = logits.argmax(dim=2)
    largest = logits.gather(2, ids[..., None])[..., 0].float().cpu().numpy()
    for row, count in zip(largest, frames, strict=True):
        check_logits(row[:count])
    if banned is not None:
        is_banned = ids == banned
        allowed_logits = logits[is_banned]
        allowed_logits[:, banned] = -torch.inf
        ids[is_banned] = allowed_logits.argmax(dim=1)
    has_token = ids != blank
    wide_type = torch.promote_types(logits.dtype, torch.float32)
    probabilities = torch.ones(ids.shape, dtype=wide_type, device=logits.device)
    probabilities[has_token] = _probabilities(logits[has_token].to(wide_type), ids[has_token])
    id_rows, probability_rows = ids.cpu().numpy(), probabilities.cpu().double().numpy()
    return [BestPath(id_rows[row, :count], probability_rows[row, :count]) for row, count in enumerate(frames)]


def _probabilities(logits: Tensor, ids: Tensor) -> Tensor:
    """Returns the softmax probability [N] of one id in each row of logits [N, V]."""
    return torch.softmax(logits, dim=1).gather(1, ids[:, None])[:, 0]
