"""The rotated queries and keys and the attention weights of one layer, read from its calls of attention.

A layer calls attention once, or once for each window of its rows; weights between windows are 0. Fused attention keeps
no weights, so they are computed again beside it. Attention in steps is two products: queries by keys, weights by
values. This file knows no networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.runtimes.pytorch.inner_stages.attention_weights import write_weights
from workbench.runtimes.pytorch.inner_stages.calls import Function, Observer
from workbench.runtimes.pytorch.numerics.arithmetic import array_of
from workbench.runtimes.pytorch.tap import tap_into
from workbench.trace.inside import check_weights
from workbench.trace.recorder import Recorder


class AttentionCalls:
    """The calls of one layer's attention.

    Args:
        stage: the beginning of its stages, such as `encoder.layers.3.attention`.
        recorder: gets the stages `query_rope`, `key_rope` and `weights` that it wants.
        key_heads: heads of keys and values; several heads of queries may share one.
        rotary: whether queries and keys are rotated before the call.
        rounded: whether attention in half precision rounds every step.
    """

    def __init__(self, stage: str, recorder: Recorder, key_heads: int, rotary: bool, rounded: bool):
        self._recorder, self._tap = recorder, tap_into(recorder)
        self._key_heads, self._rounded = key_heads, rounded
        self._weights = f"{stage}.weights"
        self._shows_weights = recorder.wanted(self._weights)
        names = (f"{stage}.query_rope", f"{stage}.key_rope")
        self._rotated = names if rotary and any(map(recorder.needs, names)) else None
        self.rows = [0, 0]  # of queries and keys of the whole layer; set before each pass
        self._begin()

    @property
    def is_needed(self) -> bool:
        """Whether a stage of these calls is wanted."""
        return self._shows_weights or self._rotated is not None

    def set_rows(self, axis: int, count: int) -> None:
        """Sets the number of rows of queries (0) or keys (1) of the layer; called before its attention runs."""
        self.rows[axis] = count
        self._begin()

    def observers(self) -> dict[Function, Observer]:
        """Returns the functions to observe while the layer's attention runs."""
        return {F.scaled_dot_product_attention: self._observe_attention, torch.matmul: self._observe_product}

    def _begin(self) -> None:
        self._first = [0, 0]  # rows of queries and keys of earlier windows
        self._arrays: list[np.ndarray | None] | None = None
        self._has_scores = False

    def _observe_attention(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        q, k, v, *further_arguments = args
        q, k = self._after_rotation(q, k)
        if self._shows_weights:
            keywords = {**dict(zip(("attn_mask", "dropout_p", "is_causal"), further_arguments)), **kwargs}
            mask, causal, scale = keywords.get("attn_mask"), bool(keywords.get("is_causal")), keywords.get("scale")
            for row, target in enumerate(self._windows(q.shape[1], q.shape[2], k.shape[2], q.dtype)):
                if target is not None:
                    row_mask = mask if mask is None or len(mask) == 1 else mask[row : row + 1]
                    write_weights(target, q[row:], k[row:], row_mask, causal, scale, keep_type=self._rounded)
        return func(q, k, v, *further_arguments, **kwargs)

    def _observe_product(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        left, right = args
        if not self._has_scores:
            left, keys = self._after_rotation(left, right.transpose(2, 3))
            right = keys.transpose(2, 3)
        elif self._shows_weights:
            _, heads, queries, keys = left.shape
            for row, target in enumerate(self._windows(heads, queries, keys, left.dtype)):
                if target is not None:
                    for head, values in enumerate(left[row]):
                        target[head] = array_of(values)
        self._has_scores = not self._has_scores
        return func(left, right, **kwargs)

    def _after_rotation(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Shows queries and keys [B, heads, rows, head width]; returns the values to continue with."""
        if self._rotated is None:
            return q, k
        queries_per_key = k.shape[1] // self._key_heads  # where keys are repeated for the queries that share them
        rotated = q.transpose(1, 2), k[:, ::queries_per_key].transpose(1, 2)
        tapped = [self._tap(stage, value) for stage, value in zip(self._rotated, rotated, strict=True)]
        if tapped[0] is not rotated[0]:
            q = tapped[0].transpose(1, 2)
        if tapped[1] is not rotated[1]:
            k = tapped[1].transpose(1, 2).repeat_interleave(queries_per_key, dim=1)
        return q, k

    def _windows(self, heads: int, queries: int, keys: int, dtype: torch.dtype) -> list[np.ndarray | None]:
        """Returns the part of the recorded weights that one call fills [heads, queries, keys], of each row of the
        batch; None for a row whose weights are not wanted."""
        if self._arrays is None:
            rows = [max(self.rows[0], queries), max(self.rows[1], keys)]
            check_weights(self._weights, heads, *rows)
            kind = np.float64 if dtype == torch.float64 else np.float32
            self._arrays = [
                each.allocate(self._weights, (heads, *rows), kind) if each.wanted(self._weights) else None
                for each in self._recorder.rows
            ]
        starts = self._first
        self._first = [starts[0] + queries, starts[1] + keys]
        place = (slice(None), slice(starts[0], starts[0] + queries), slice(starts[1], starts[1] + keys))
        return [None if each is None else each[place] for each in self._arrays]
