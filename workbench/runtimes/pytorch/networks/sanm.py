"""The SAN-M encoder in PyTorch, with the parameter names of the published checkpoints.

Gao et al., "SAN-M: Memory Equipped Self-Attention for End-to-End Speech Recognition", Interspeech 2020: self-attention
with an FSMN memory, a depthwise convolution over the values. Axes: B batch, T frames, D width. Reading order:
position encoding, memory, attention, layer, encoder.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.families.sanm.encoder import SanmConfig
from workbench.runtimes.pytorch.numerics.graph_replays import GraphReplays
from workbench.runtimes.pytorch.tap import Tap, no_tap


def sinusoid(frames: int, depth: int, like: Tensor) -> Tensor:
    """Returns the position encoding [T, depth]: sines of positions 1..T in the first half, cosines in the second.

    The rates fall from 1 to 1/10000 over depth/2 - 1 steps (Vaswani et al. 2017, tensor2tensor's variant). They are
    computed in float32 or wider.
    """
    half = depth // 2
    dtype = torch.promote_types(like.dtype, torch.float32)
    positions = torch.arange(1, frames + 1, dtype=dtype, device=like.device)
    rates = torch.exp(torch.arange(half, dtype=dtype, device=like.device) * -(math.log(10000.0) / (half - 1)))
    angles = positions[:, None] * rates[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1).to(like.dtype)


class FsmnMemory(nn.Module):
    """FSMN memory block: a depthwise convolution over time plus its input (Zhang et al., 2018).

    `shift` moves the window towards the past: with 0 it covers as many frames back as ahead.
    """

    def __init__(self, width: int, kernel_size: int, shift: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, 1, kernel_size))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        left = (kernel_size - 1) // 2 + shift
        self.padding = (left, kernel_size - 1 - left)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Maps x [B, T, D] to [B, T, D], zero where masked; `mask` is [B, T, 1] of ones and zeros, or None."""
        x = x.to(self.weight.dtype)
        if mask is not None:
            x = x * mask
        memory = depthwise(x, self.weight, self.padding)
        return memory if mask is None else memory * mask


def depthwise(x: Tensor, weight: Tensor, padding: tuple[int, int]) -> Tensor:
    """Returns x + depthwise convolution of x over time; x [B, T, D], weight [D, 1, K], zero padding; the result is [B,
    T, D].

    It is computed as an image of height 1 with the channels last, which matches the layout of x in memory: a 1-D
    convolution would transpose x twice and take several times as long.
    """
    left, right = padding
    image = x.transpose(1, 2).unsqueeze(2)
    if left != right:
        image, left = F.pad(image, (left, right)), 0
    image = image.contiguous(memory_format=torch.channels_last)
    memory = F.conv2d(image, weight.unsqueeze(2), padding=(0, left), groups=weight.shape[0])
    return memory.squeeze(2).transpose(1, 2) + x


class SanmAttention(nn.Module):
    """Multi-head self-attention with an FSMN memory over the values."""

    def __init__(self, in_size: int, size: int, heads: int, kernel_size: int, shift: int):
        super().__init__()
        self.heads = heads
        self.linear_q_k_v = nn.Linear(in_size, 3 * size)
        self.linear_out = nn.Linear(size, size)
        self.fsmn_block = FsmnMemory(size, kernel_size, shift)

    def forward(self, x: Tensor, mask: Tensor | None, tap: Tap, stage: str) -> Tensor:
        """Maps x [B, T, in] to [B, T, D]; `mask` is [B, T, 1] or None."""
        batch, frames, _ = x.shape
        q, k, v = self.linear_q_k_v(x).chunk(3, dim=-1)
        memory = tap(f"{stage}.fsmn", self.fsmn_block(v, mask))
        q, k, v = (part.view(batch, frames, self.heads, -1).transpose(1, 2) for part in (q, k, v))
        keys = None if mask is None else mask.bool().view(batch, 1, 1, frames)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=keys)
        attention = self.linear_out(context.transpose(1, 2).reshape(batch, frames, -1))
        return tap(f"{stage}.attention", attention) + memory


class FeedForward(nn.Module):
    """Two linear layers with a ReLU between."""

    def __init__(self, size: int, units: int):
        super().__init__()
        self.w_1 = nn.Linear(size, units)
        self.w_2 = nn.Linear(units, size)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, T, D] to [B, T, D]."""
        return self.w_2(F.relu(self.w_1(x), inplace=not self.training))


class SanmLayer(nn.Module):
    """Pre-norm block: attention with memory, then feed-forward.

    In the first layer the width changes, so its attention has no residual connection.
    """

    def __init__(self, in_size: int, config: SanmConfig, dropout: float):
        super().__init__()
        size = config.output_size
        self.self_attn = SanmAttention(in_size, size, config.attention_heads, config.kernel_size, config.sanm_shift)
        self.feed_forward = FeedForward(size, config.linear_units)
        self.norm1 = nn.LayerNorm(in_size, eps=config.norm_eps)
        self.norm2 = nn.LayerNorm(size, eps=config.norm_eps)
        self.dropout = dropout
        self.residual = in_size == size

    def forward(self, x: Tensor, mask: Tensor | None, tap: Tap, stage: str) -> Tensor:
        """Maps x [B, T, in] to [B, T, D]; `mask` is [B, T, 1] or None."""
        attention = F.dropout(self.self_attn(self.norm1(x), mask, tap, stage), self.dropout, self.training)
        x = x + attention if self.residual else attention
        return x + F.dropout(self.feed_forward(self.norm2(x)), self.dropout, self.training)


class SanmEncoder(nn.Module):
    """SAN-M encoder of one stage (Paraformer) or two (SenseVoice, Fun-ASR-Nano: `tp_encoders`)."""

    def __init__(self, config: SanmConfig, dropout: float = 0.0):
        super().__init__()
        self.config = config
        size = config.output_size
        self.encoders0 = nn.ModuleList([SanmLayer(config.input_size, config, dropout)])
        self.encoders = nn.ModuleList(SanmLayer(size, config, dropout) for _ in range(config.num_blocks - 1))
        self.after_norm = nn.LayerNorm(size, eps=config.norm_eps)
        if config.two_stages:
            self.tp_encoders = nn.ModuleList(SanmLayer(size, config, dropout) for _ in range(config.tp_blocks))
            self.tp_norm = nn.LayerNorm(size, eps=config.norm_eps)
        self.replays: GraphReplays | None = None

    def replay_on(self, device: torch.device) -> None:
        """Makes the encoder replay its passes if the device is a GPU."""
        if device.type == "cuda":
            self.replays = GraphReplays()

    @property
    def layers(self) -> list[SanmLayer]:
        """All layers, in the order of the computation."""
        return [*self.encoders0, *self.encoders, *getattr(self, "tp_encoders", ())]

    def forward(self, x: Tensor, lengths: Tensor | None = None, tap: Tap = no_tap) -> Tensor:
        """Encodes features x [B, T, input] to [B, T, D].

        `lengths` [B] counts each row's frames; None if all rows are full. Padding frames do not influence the others.
        """
        if self.replays is not None and lengths is None and tap is no_tap and self.replays.accepts(x):
            return self.replays(self.encode, x)
        return self.encode(x, lengths, tap)

    def encode(self, x: Tensor, lengths: Tensor | None, tap: Tap = no_tap) -> Tensor:
        """Computes the same as `forward`, without replays."""
        mask = None if lengths is None else length_mask(lengths, x.shape[1]).unsqueeze(-1).to(x.dtype)
        x = x * self.config.output_size**0.5
        x = tap("encoder.input", x + sinusoid(x.shape[1], x.shape[2], x))
        number = 0
        for layer in [*self.encoders0, *self.encoders]:
            x = tap(f"encoder.layers.{number}", layer(x, mask, tap, f"encoder.layers.{number}"))
            number += 1
        x = self.after_norm(x)
        if self.config.two_stages:
            x = tap("encoder.after_norm", x)
            for layer in self.tp_encoders:
                x = tap(f"encoder.layers.{number}", layer(x, mask, tap, f"encoder.layers.{number}"))
                number += 1
            x = self.tp_norm(x)
        return tap("encoder.output", x)


def length_mask(lengths: Tensor, frames: int) -> Tensor:
    """Returns a boolean mask [B, T]: True on each row's first `lengths` frames."""
    return torch.arange(frames, device=lengths.device)[None, :] < lengths[:, None]
