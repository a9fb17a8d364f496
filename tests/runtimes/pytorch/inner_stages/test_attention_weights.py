"""Attention weights computed in pieces agree with fused attention, whatever the mask."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from workbench.runtimes.pytorch.inner_stages import attention_weights
from workbench.runtimes.pytorch.inner_stages.attention_weights import write_weights
from workbench.trace.spill import Spill


@settings(max_examples=40)
@given(
    queries=st.integers(1, 9),
    keys=st.integers(1, 9),
    group_size=st.sampled_from([1, 2]),
    kind=st.sampled_from(["none", "causal", "seen", "added"]),
    scale=st.sampled_from([None, 0.3]),
    piece=st.integers(1, 40),
)
def test_weights_times_values_are_fused_attention(
    queries: int, keys: int, group_size: int, kind: str, scale: float | None, piece: int
) -> None:
    draw = torch.Generator().manual_seed(queries + 10 * keys)
    q, k, v = (
        torch.randn(2, heads, rows, 4, generator=draw, dtype=torch.float64)
        for heads, rows in ((4, queries), (4 // group_size, keys), (4 // group_size, keys))
    )
    mask = None
    if kind == "seen":
        mask = torch.rand(2, 1, 1, keys, generator=draw) < 0.6
        mask[..., 0] = True
    elif kind == "added":
        mask = torch.randn(1, 4, queries, keys, generator=draw, dtype=torch.float64)
    weights = np.zeros((4, queries, keys))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_weights, "_PIECE", piece)
        write_weights(weights, q, k, mask, kind == "causal", scale)
    np.testing.assert_allclose(weights.sum(axis=2), 1)
    if kind == "seen":
        assert not weights[:, :, ~mask[0, 0, 0].numpy()].any()
    fused = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=kind == "causal", scale=scale, enable_gqa=group_size > 1
    )
    np.testing.assert_allclose(weights @ v[0].repeat_interleave(group_size, 0).numpy(), fused[0].numpy(), atol=1e-12)


def test_fully_masked_row_has_zero_weights() -> None:
    weights = np.ones((1, 2, 3), np.float32)
    q, k = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 3, 4)
    write_weights(weights, q, k, torch.tensor([[False] * 3, [True, True, False]]))
    np.testing.assert_array_equal(weights, [[[0, 0, 0], [0.5, 0.5, 0]]])


def test_half_precision_is_rounded_at_every_step_only_where_asked() -> None:
    q, k = (torch.randn(1, 1, 5, 8, generator=torch.Generator().manual_seed(n)).bfloat16() for n in (1, 2))
    into = np.zeros((2, 5, 5), np.float32)
    for index, rounded in enumerate((False, True)):
        write_weights(into[index : index + 1], q, k, keep_type=rounded)
    wide = ((q.float() @ k.float().mT) / math.sqrt(8)).softmax(-1)
    steps = ((q @ k.mT) * (1 / math.sqrt(8))).softmax(-1)
    np.testing.assert_allclose(into[0], wide[0, 0], rtol=1e-6)
    np.testing.assert_array_equal(into[1], steps[0, 0].float())


class LargestTensor(TorchDispatchMode):
    """Records the size of the largest tensor."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.elements = max(self.elements, leaf.untyped_storage().nbytes() // leaf.element_size())
        return result


def test_a_long_recording_needs_the_memory_of_one_piece_beside_the_spilled_weights() -> None:
    heads, rows = 3, 1500
    q, k = (torch.randn(1, heads, rows, 4) for _ in range(2))
    spill = Spill(limit=0)
    into = spill.allocate("encoder.layers.0.attention.weights", (heads, rows, rows), np.float32)
    with LargestTensor() as largest, pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_weights, "_PIECE", 100 * rows)
        write_weights(into, q, k, causal=True)
    assert 100 * rows <= largest.elements < 101 * rows
    assert isinstance(into.base, mmap.mmap)  # in a file
    np.testing.assert_allclose(into[2].sum(axis=1), 1, rtol=1e-5)
