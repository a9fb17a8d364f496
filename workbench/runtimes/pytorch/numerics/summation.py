"""Sums products in another order, to measure how far correct results of one precision lie apart.

Correct programs add the products of a linear layer in different orders, in several parts, and round the parts to
float32 or to the type of the network. Programs on GGUF files also round the inputs of such a layer to blocks. A mode of
this file does the same in one thread. Its random orders depend on a seed, so a few seeds show the *clean spread* of the
precision. This file knows no network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from workbench.runtimes.pytorch.numerics.arithmetic import HALVES
from workbench.runtimes.pytorch.numerics.weight_override import STORED_TYPE

PARTS = (2, 4)  # numbers of parts that products are summed in
BLOCKS: Mapping[str, int] = {"Q8_0": 32, "Q4_0": 32, "Q4_1": 32, "Q5_0": 32, "Q5_1": 32, "IQ4_NL": 32, "MXFP4": 32}
WIDE_BLOCK = 256  # values that share a scale in ggml's inputs for k-quants
STEPS = 127  # steps of such a block to either side
_ROUNDED = {"F16": torch.float16, "BF16": torch.bfloat16}


class Summation(TorchFunctionMode):
    """A mode in which linear layers of this thread sum in another order.

    Args:
        number: the seed of the random orders. Even numbers round the parts of half-precision sums to float32, odd
            numbers to the type of the network.
    """

    def __init__(self, number: int):
        super().__init__()
        self._draw = torch.Generator().manual_seed(number)
        self._parts = PARTS[number // 2 % len(PARTS)]
        self._keeps_float32 = number % 2 == 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        keywords = kwargs or {}
        return self._linear(*args, **keywords) if func is F.linear else func(*args, **keywords)

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if input.dtype == torch.float64 or input.shape[-1] < 2:
            return F.linear(input, weight, bias)
        # A view, such as the matrix of a convolution with one tap, lacks the attributes of its parameter.
        stored = getattr(weight if weight._base is None else weight._base, STORED_TYPE, "")
        is_half = input.dtype in HALVES.values()
        order = torch.randperm(input.shape[-1], generator=self._draw)
        x, w = _as_ggml(input, order, stored), weight[:, order]
        total = None
        for part in torch.arange(len(order)).chunk(self._parts):
            piece = F.linear(x[..., part].float(), w[:, part].float())
            piece = piece.to(input.dtype) if is_half and not self._keeps_float32 else piece
            total = piece if total is None else total + piece
        assert total is not None
        if is_half and self._keeps_float32 and bias is not None:
            return (total + bias.float()).to(input.dtype)
        result = total.to(input.dtype)
        return result if bias is None else result + bias


def _as_ggml(x: Tensor, order: Tensor, stored: str) -> Tensor:
    """Returns inputs in another order, rounded as ggml rounds them for weights of a type; `stored` is empty for others.

    Blocks of the reordered values share scales, so that each order rounds in another way.
    """
    x = x[..., order]
    if stored in _ROUNDED:
        return x.to(_ROUNDED[stored]).to(x.dtype)
    if not stored or stored in ("F32", "F64"):
        return x
    size = BLOCKS.get(stored, WIDE_BLOCK)
    padded = F.pad(x, (0, -x.shape[-1] % size)).unflatten(-1, (math.ceil(x.shape[-1] / size), size))
    scale = padded.abs().amax(dim=-1, keepdim=True) / STEPS
    rounded = torch.where(scale > 0, (padded / scale.clamp(min=torch.finfo(x.dtype).tiny)).round() * scale, padded)
    return rounded.flatten(-2)[..., : x.shape[-1]]
