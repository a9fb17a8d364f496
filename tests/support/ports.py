"""Clean ports in half precision: the same network, with other steps rounded and sums in another order.

A `Port` alters how torch computes in this thread, until its `with` block ends, as ports of right models do: which of
the steps of attention, of norms and of activations round their results, in what order and in how many parts products
are summed, and in what type the parts are. What is altered is drawn, and named. All of them compute the mean and the
variance of a norm in float32, as libraries do: squares soon are too large for float16.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

HALVES = (torch.bfloat16, torch.float16)
CHANGES = ("order", "parts", "noise", "attention", "norm", "activation")
_linear, _attention = F.linear, F.scaled_dot_product_attention


class Port(contextlib.ExitStack):
    """Ports of a seed.

    Args:
        changes: those of `CHANGES` to make; by itself, some that are drawn.
    """

    def __init__(self, seed: int, changes: tuple[str, ...] = ()):
        super().__init__()
        self.draw, self.order = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        self.changes = changes or tuple(name for name in CHANGES if self.draw.random() < 0.5) or ("order",)
        self.parts = int(self.draw.choice([1, 2, 4])) if "parts" in self.changes else 1
        self.wide = bool(self.draw.integers(2))  # parts are summed in float32
        self.softmax = ("float32", "weights", "scores")[int(self.draw.integers(3))]

    def __enter__(self) -> Port:
        from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm
        from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

        if {"order", "parts", "noise"} & set(self.changes):
            self._put(F, "linear", self._product)
        if "attention" in self.changes:
            self._put(F, "scaled_dot_product_attention", self._attended)
        if "norm" in self.changes:
            self._put(Qwen2RMSNorm, "forward", _fused_rms)
            self._put(Qwen3RMSNorm, "forward", _fused_rms)
        if "activation" in self.changes:
            self._put(F, "silu", lambda x, inplace=False: x * torch.sigmoid(x))
        return self

    def _put(self, owner: Any, name: str, value: Any) -> None:
        self.enter_context(mock.patch.object(owner, name, value))

    def _product(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """A linear layer, summed in an order and in parts; with noise, rounded once more on its way out."""
        if x.dtype not in HALVES:
            return _linear(x, weight, bias)
        order = torch.arange(x.shape[-1])
        if {"order", "parts"} & set(self.changes):
            order = torch.randperm(x.shape[-1], generator=self.order)
        found = None
        for part in order.chunk(self.parts):
            partial = _linear(x[..., part].float(), weight[:, part].float())
            partial = partial if self.wide else partial.to(x.dtype)
            found = partial if found is None else found + partial
        assert found is not None
        found = found.to(x.dtype)
        if "noise" in self.changes:
            step = torch.finfo(x.dtype).eps / 2
            found = (found * (1 + step * (2 * torch.rand(found.shape, generator=self.order) - 1))).to(x.dtype)
        return found if bias is None else found + bias

    def _attended(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Attention written out: the scores rounded, or the weights alone, or nothing before the end."""
        if q.dtype not in HALVES:
            return _attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        if enable_gqa:
            k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
        kind, scale = q.dtype, q.shape[-1] ** -0.5 if scale is None else scale
        if self.softmax != "scores":
            q, k = q.float(), k.float()
        scores = (q @ k.transpose(-1, -2)) * scale
        if is_causal and scores.shape[-2] > 1:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
        if attn_mask is not None:
            hidden = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -math.inf) if hidden else scores + attn_mask
        weights = scores.float().softmax(-1)
        return (weights @ v.float()).to(kind) if self.softmax == "float32" else weights.to(kind) @ v


def _fused_rms(norm: Any, x: Tensor) -> Tensor:
    """An RMS norm that rounds once, at its end; that of transformers rounds before its weight, too."""
    wide = x.float()
    found = norm.weight.float() * (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + norm.variance_epsilon))
    return found.to(x.dtype)
