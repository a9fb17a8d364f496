"""Layers of the towers on vLLM's parallel ones: split over devices where the sizes divide, else on each of them whole.

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
    """Whether a layer of so many heads or units is split over the devices."""
    devices = get_tensor_model_parallel_world_size()
    return devices > 1 and size % devices == 0


def norm(size: int, eps: float) -> nn.LayerNorm:
    """A layer norm over the last axis."""
    return nn.LayerNorm(size, eps=eps, dtype=EXACT)


def linear(inputs: int, outputs: int) -> ReplicatedLinear:
    """A linear layer that every device has whole."""
    return ReplicatedLinear(inputs, outputs, params_dtype=EXACT, return_bias=False)


def heads_in(inputs: int, size: int, heads: int) -> QKVParallelLinear:
    """The linear layer before an attention: queries, keys and values of this device's heads, one behind the other."""
    return QKVParallelLinear(
        inputs, size // heads, heads, params_dtype=EXACT, disable_tp=not splits(heads), return_bias=False
    )


def heads_out(size: int, heads: int) -> RowParallelLinear:
    """The linear layer behind an attention, of this device's heads; every device gets the whole sum."""
    return RowParallelLinear(size, size, params_dtype=EXACT, disable_tp=not splits(heads), return_bias=False)


def attention(qkv: Tensor, size: int, keys: Tensor | None) -> Tensor:
    """Attention of each row over itself.

    Args:
        qkv: [B, T, 3 * heads * size], as `heads_in` gives it.
        size: of a head.
        keys: true on the frames that are looked at [B, T]; None for all.

    Returns [B, T, heads * size].
    """
    q, k, v = (part.unflatten(2, (-1, size)).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    mask = None if keys is None else keys[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    """Two linear layers with a ReLU between."""

    def __init__(self, size: int, units: int):
        super().__init__()
        whole = not splits(units)
        self.w_1 = ColumnParallelLinear(size, units, params_dtype=EXACT, disable_tp=whole, return_bias=False)
        self.w_2 = RowParallelLinear(units, size, params_dtype=EXACT, disable_tp=whole, return_bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        projected: Tensor = self.w_2(F.relu(self.w_1(x)))
        return projected


class Memory(nn.Module):
    """FSMN memory: each channel's convolution over time added to it, of this device's heads; whole when it returns.

    Args:
        shift: frames by which the window lies in the past; 0 looks as far back as ahead.
    """

    def __init__(self, size: int, heads: int, kernel_size: int, shift: int):
        super().__init__()
        self.split = splits(heads)
        own = size // (get_tensor_model_parallel_world_size() if self.split else 1)
        self.weight = nn.Parameter(torch.empty(own, 1, kernel_size, dtype=EXACT), requires_grad=False)
        set_weight_attrs(self.weight, {"weight_loader": self._load})
        self.before = (kernel_size - 1) // 2 + shift
        self.behind = kernel_size - 1 - self.before

    def _load(self, parameter: nn.Parameter, loaded: Tensor) -> None:
        own = len(parameter)
        first = get_tensor_model_parallel_rank() * own if self.split else 0
        parameter.data.copy_(loaded[first : first + own])

    def forward(self, v: Tensor, keys: Tensor | None) -> Tensor:
        """v [B, T, own channels], keys as of `attention`; returns [B, T, D], zero on the other frames."""
        if keys is not None:
            v = v * keys[..., None]
        # An image of height 1 whose channels lie side by side, as v has them: nothing is transposed in memory.
        image = F.pad(v, (0, 0, self.before, self.behind)).transpose(1, 2).unsqueeze(2)
        moved = F.conv2d(image, self.weight.unsqueeze(2), groups=len(self.weight)).squeeze(2).transpose(1, 2)
        memory = v + moved if keys is None else (v + moved) * keys[..., None]
        return tensor_model_parallel_all_gather(memory.contiguous(), dim=-1) if self.split else memory
