"""Attention weights beside fused attention: the softmax of the scores, computed again in pieces.

Networks compute attention in one fused step, which keeps no weights. Here they are computed from the same queries, keys
and mask, some rows of one head at a time, so that they need the memory of the result and of one piece. This file knows
no networks.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from workbench.runtimes.pytorch.numerics.arithmetic import array_of
from workbench.trace.spill import release

_PIECE = 1 << 22  # weights that are computed at once


def write_weights(
    target: np.ndarray,
    q: Tensor,
    k: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    keep_type: bool = False,
) -> None:
    """Fills `target` [heads, queries, keys] with the weights that `scaled_dot_product_attention` uses for row 0.

    Positions that the mask hides have weight 0; a row in which all are hidden is 0.

    Args:
        q: [B, heads, queries, head width].
        k: [B, heads or a divisor of it, keys, head width].
        mask: true where a key is seen, or values to add to the scores; it can be expanded to [B, heads, queries, keys].
        causal: whether a query sees only keys up to its own place.
        scale: of the scores; by default one over the square root of the head width.
        keep_type: compute in the type of `q` also where that is half precision; otherwise in float32 or wider.
    """
    heads, queries, keys = target.shape
    wide_type = q.dtype if keep_type else torch.promote_types(q.dtype, torch.float32)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    expanded = None if mask is None else mask.expand(len(q), heads, queries, keys)[0]
    rows = max(1, _PIECE // max(keys, 1))
    for head in range(heads):
        transposed = k[0, head * k.shape[1] // heads].to(wide_type).T
        for first in range(0, queries, rows):
            piece = slice(first, min(first + rows, queries))
            scores = (q[0, head, piece].to(wide_type) @ transposed) * factor
            if causal:
                visible = torch.arange(keys, device=q.device) <= torch.arange(queries, device=q.device)[piece, None]
                scores.masked_fill_(~visible, -torch.inf)
            if expanded is not None:
                piece_mask = expanded[head, piece]
                scores = (
                    scores.masked_fill(~piece_mask, -torch.inf)
                    if piece_mask.dtype == torch.bool
                    else scores + piece_mask.to(wide_type)
                )
            target[head, piece] = array_of(scores.softmax(dim=-1).nan_to_num(nan=0.0))
        release(target)
