"""Layers of the towers on vLLM's parallel layers: split over devices if the sizes divide, else whole on each device.

Arithmetic and weights are float32. Parameter names are those of the published checkpoints.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from vllm.distributed import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    tensor_model_parallel_all_gather,
)
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
from vllm.model_executor.utils import set_weight_attrs

EXACT = torch.float32


def splits(size: int) -> bool:
    """Returns whether a layer with `size` heads or units is split over the devices."""
    devices = get_tensor_model_parallel_world_size()
    return devices > 1 and size % devices == 0


def norm(size: int, eps: float) -> nn.LayerNorm:
    """Returns a layer norm over the last axis."""
    return nn.LayerNorm(size, eps=eps, dtype=EXACT)


def linear(inputs: int, outputs: int) -> ReplicatedLinear:
    """Returns a linear layer that is whole on every device."""
    return ReplicatedLinear(inputs, outputs, params_dtype=EXACT, return_bias=False)


def heads_in(inputs: int, size: int, heads: int) -> QKVParallelLinear:
    """Returns the linear layer before an attention: queries, keys and values of this device's heads, concatenated."""
    return QKVParallelLinear(
        inputs, size // heads, heads, params_dtype=EXACT, disable_tp=not splits(heads), return_bias=False
    )


def heads_out(size: int, heads: int) -> RowParallelLinear:
    """Returns the linear layer after an attention, for this device's heads; every device gets the whole sum."""
    return RowParallelLinear(size, size, params_dtype=EXACT, disable_tp=not splits(heads), return_bias=False)


def attention(qkv: Tensor, size: int, keys: Tensor | None) -> Tensor:
    """Returns self-attention of each row, [B, T, heads * size].

    Args:
        qkv: [B, T, 3 * heads * size], from `heads_in`.
        size: of a head.
        keys: true on the frames to attend to [B, T]; None for all.
    """
    q, k, v = (part.unflatten(2, (-1, size)).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    mask = None if keys is None else keys[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    """Two linear layers with a ReLU between."""

    def __init__(self, size: int, units: int):
        super().__init__()
        replicated = not splits(units)
        self.w_1 = ColumnParallelLinear(size, units, params_dtype=EXACT, disable_tp=replicated, return_bias=False)
        self.w_2 = RowParallelLinear(units, size, params_dtype=EXACT, disable_tp=replicated, return_bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, T, D] to [B, T, D]."""
        projected: Tensor = self.w_2(F.relu(self.w_1(x)))
        return projected


class Memory(nn.Module):
    """FSMN memory: adds each channel's convolution over time, for this device's heads; the output has all heads.

    Args:
        shift: number of frames by which the window moves towards the past; with 0 it covers as many frames back as
            ahead.
    """

    def __init__(self, size: int, heads: int, kernel_size: int, shift: int):
        super().__init__()
        self.split = splits(heads)
        channels = size // (get_tensor_model_parallel_world_size() if self.split else 1)
        self.weight = nn.Parameter(torch.empty(channels, 1, kernel_size, dtype=EXACT), requires_grad=False)
        set_weight_attrs(self.weight, {"weight_loader": self._load})
        self.before = (kernel_size - 1) // 2 + shift
        self.behind = kernel_size - 1 - self.before

    def _load(self, parameter: nn.Parameter, loaded: Tensor) -> None:
        count = len(parameter)
        first = get_tensor_model_parallel_rank() * count if self.split else 0
        parameter.data.copy_(loaded[first : first + count])

    def forward(self, v: Tensor, keys: Tensor | None) -> Tensor:
        """Maps v [B, T, own channels] to [B, T, D], zero on masked frames; `keys` as in `attention`."""
        if keys is not None:
            v = v * keys[..., None]
        # An image of height 1 with the channels last, which matches the layout of v in memory: no transposed copy.
        image = F.pad(v, (0, 0, self.before, self.behind)).transpose(1, 2).unsqueeze(2)
        moved = F.conv2d(image, self.weight.unsqueeze(2), groups=len(self.weight)).squeeze(2).transpose(1, 2)
        memory = v + moved if keys is None else (v + moved) * keys[..., None]
        return tensor_model_parallel_all_gather(memory.contiguous(), dim=-1) if self.split else memory
