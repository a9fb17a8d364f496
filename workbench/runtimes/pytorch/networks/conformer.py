"""FireRedASR's Conformer encoder in PyTorch, with the parameter names of the published checkpoints.

Gulati et al., "Conformer: Convolution-augmented Transformer for Speech Recognition", Interspeech 2020, with the
relative positions of Dai et al., "Transformer-XL", ACL 2019. Axes: B batch, T frames, D width. Reading order:
subsampling, positions, feed-forward, attention, convolution, block, encoder.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.families.speech_llm.conformer import CONTEXT_FRAMES, ConformerConfig
from workbench.runtimes.pytorch.networks.sanm import length_mask
from workbench.runtimes.pytorch.tap import Tap, no_tap

CHANNELS = 32  # channels of the subsampling convolutions
QUERIES = 128  # frames whose scores by distance are computed at once


class Subsampling(nn.Module):
    """Two strided convolutions over time and frequency, then a linear layer: four frames become one."""

    def __init__(self, idim: int, size: int):
        super().__init__()
        first, second = nn.Conv2d(1, CHANNELS, 3, 2), nn.Conv2d(CHANNELS, CHANNELS, 3, 2)
        self.conv = nn.ModuleList([first, nn.ReLU(), second, nn.ReLU()])
        self.out = nn.Linear(CHANNELS * (((idim - 1) // 2 - 1) // 2), size)

    def forward(self, features: Tensor) -> Tensor:
        """Maps [B, L, mels] to [B, ceil(L / 4), D]; pads the features with zeros to complete the last context."""
        x = F.pad(features, (0, 0, 0, CONTEXT_FRAMES - 1)).unsqueeze(1)
        # On a CPU one row at a time: its maps then fit in the cache, which takes less than half as long.
        rows = x.split(1) if x.device.type == "cpu" and not self.training else (x,)
        return torch.cat([self.out(self._maps(row).transpose(1, 2).flatten(2)) for row in rows])

    def _maps(self, x: Tensor) -> Tensor:
        """Maps [B, 1, L, mels] to [B, channels, ceil(L / 4), mels / 4]."""
        for layer in self.conv:
            x = layer(x)
        return x


def relative_positions(frames: int, size: int, like: Tensor) -> Tensor:
    """Returns sinusoids [2T - 1, D] of the distances T - 1 down to 1 - T: sines in even channels, cosines in odd ones.

    They are computed in float32 or wider.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    distances = torch.arange(frames - 1, -frames, -1, dtype=dtype, device=like.device)
    steps = torch.arange(0, size, 2, dtype=dtype, device=like.device)
    angles = distances[:, None] * torch.exp(steps * -(math.log(10000.0) / size))
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1).to(like.dtype)


class FeedForward(nn.Module):
    """Layer norm and two linear layers with a swish between; half of the output is added to the input."""

    def __init__(self, size: int, dropout: float):
        super().__init__()
        expand, project = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.net = nn.Sequential(
            nn.LayerNorm(size), expand, nn.SiLU(), nn.Dropout(dropout), project, nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, T, D] to [B, T, D]."""
        return x + 0.5 * self.net(x)


class RelativeAttention(nn.Module):
    """Multi-head self-attention with relative positions; query, key and value each have a layer norm."""

    def __init__(self, size: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.w_qs = nn.Linear(size, size, bias=False)
        self.w_ks = nn.Linear(size, size, bias=False)
        self.w_vs = nn.Linear(size, size, bias=False)
        self.fc = nn.Linear(size, size, bias=False)
        self.linear_pos = nn.Linear(size, size, bias=False)
        self.layer_norm_q = nn.LayerNorm(size)
        self.layer_norm_k = nn.LayerNorm(size)
        self.layer_norm_v = nn.LayerNorm(size)
        bound = math.sqrt(6.0 / (heads + size // heads))  # Glorot and Bengio 2010, on [heads, head width]
        self.pos_bias_u = nn.Parameter(torch.empty(heads, size // heads).uniform_(-bound, bound))
        self.pos_bias_v = nn.Parameter(torch.empty(heads, size // heads).uniform_(-bound, bound))
        self.dropout = dropout

    def forward(self, x: Tensor, positions: Tensor, keys: Tensor | None, tap: Tap, stage: str) -> Tensor:
        """Maps x [B, T, D] to [B, T, D].

        Args:
            positions: [2T - 1, D].
            keys: [B, T], true where there is speech; or None.
        """
        q = self._split(self.w_qs(self.layer_norm_q(x)))
        k = self._split(self.w_ks(self.layer_norm_k(x)))
        v = self._split(self.w_vs(self.layer_norm_v(x)))
        p = self._split(self.linear_pos(positions)[None])
        scale = q.shape[-1] ** -0.5
        mask = _position_scores((q + self.pos_bias_v[:, None].to(q.dtype)) * scale, p, keys)
        q = q + self.pos_bias_u[:, None].to(q.dtype)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        attention = tap(f"{stage}.attention", self.fc(context.transpose(1, 2).flatten(2)))
        return x + F.dropout(attention, self.dropout, self.training)

    def _split(self, x: Tensor) -> Tensor:
        """Maps [B, T, D] to [B, heads, T, D / heads]."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


def _position_scores(q: Tensor, p: Tensor, keys: Tensor | None) -> Tensor:
    """Returns the scores [B, H, T, T] of queries [B, H, T, d] with the positions [1, H, 2T - 1, d] of the keys.

    It computes `QUERIES` queries at a time, because all queries together meet twice as many distances as they need.

    Args:
        keys: [B, T]; scores of keys that are false become -inf.
    """
    frames = q.shape[2]
    hidden = None
    if keys is not None:
        hidden = torch.zeros_like(keys, dtype=q.dtype).masked_fill(~keys, -torch.inf)[:, None, None]
    blocks = []
    for first in range(0, frames, QUERIES):
        last = min(first + QUERIES, frames)
        distances = p[:, :, frames - last : 2 * frames - 1 - first]  # from the last query and key 0 on
        scores = _by_key(q[:, :, first:last] @ distances.transpose(2, 3), frames)
        blocks.append(scores if hidden is None else scores + hidden)
    return torch.cat(blocks, dim=2)


def _by_key(scores: Tensor, keys: int) -> Tensor:
    """Turns scores by distance [B, H, queries, queries + keys - 1] into scores by key [B, H, queries, keys].

    The last row begins at the first distance, and each row before it one distance further (the shift of Dai et al.
    2019, appendix B). So the step from one row's beginning to the next is one element less than a row, and the result
    is a view.
    """
    *outer, queries, _ = scores.shape
    *steps, row, step = scores.stride()
    first = scores.storage_offset() + (queries - 1) * step
    return scores.as_strided((*outer, queries, keys), (*steps, row - step, step), first)


class Convolution(nn.Module):
    """Pointwise, gate, depthwise over time, layer norm (called batch_norm in the files), swish, pointwise."""

    def __init__(self, size: int, kernel_size: int, dropout: float):
        super().__init__()
        self.pre_layer_norm = nn.LayerNorm(size)
        self.pointwise_conv1 = nn.Conv1d(size, 4 * size, 1, bias=False)
        self.depthwise_conv = nn.Conv1d(
            2 * size, 2 * size, kernel_size, padding=(kernel_size - 1) // 2, groups=2 * size, bias=False
        )
        self.batch_norm = nn.LayerNorm(2 * size)
        self.pointwise_conv2 = nn.Conv1d(2 * size, size, 1, bias=False)
        self.dropout = dropout

    def forward(self, x: Tensor, mask: Tensor | None, tap: Tap, stage: str) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; `mask` is [B, T, 1] of ones and zeros, or None."""
        inner = self.pre_layer_norm(x)
        if mask is not None:
            inner = inner * mask
        gated = F.glu(_pointwise(inner, self.pointwise_conv1), dim=2).to(self.depthwise_conv.weight.dtype)
        # Computed as an image of height 1 with the channels last, which matches the layout in memory: see
        # `sanm.depthwise`.
        image = gated.transpose(1, 2).unsqueeze(2).contiguous(memory_format=torch.channels_last)
        weight = self.depthwise_conv.weight
        image = F.conv2d(image, weight.unsqueeze(2), padding=(0, weight.shape[2] // 2), groups=weight.shape[0])
        inner = F.silu(self.batch_norm(image.squeeze(2).transpose(1, 2)))
        inner = _pointwise(inner, self.pointwise_conv2)
        inner = F.dropout(inner, self.dropout, self.training)
        if mask is not None:
            inner = inner * mask
        return x + tap(f"{stage}.convolution", inner)


def _pointwise(x: Tensor, convolution: nn.Conv1d) -> Tensor:
    """Returns a convolution with one tap of x [B, T, D], in the type of its weight."""
    weight = convolution.weight
    return F.linear(x.to(weight.dtype), weight.squeeze(2))


class ConformerBlock(nn.Module):
    """Half a feed-forward, attention, convolution, half a feed-forward, layer norm."""

    def __init__(self, config: ConformerConfig, dropout: float):
        super().__init__()
        self.ffn1 = FeedForward(config.d_model, dropout)
        self.mhsa = RelativeAttention(config.d_model, config.n_head, dropout)
        self.conv = Convolution(config.d_model, config.kernel_size, dropout)
        self.ffn2 = FeedForward(config.d_model, dropout)
        self.layer_norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor | None, tap: Tap, stage: str) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; `positions` is [2T - 1, D], `mask` is [B, T, 1] or None."""
        x = self.ffn1(x)
        x = self.mhsa(x, positions, None if mask is None else mask.bool().squeeze(2), tap, stage)
        x = self.conv(x, mask, tap, stage)
        return self.layer_norm(self.ffn2(x))


class ConformerEncoder(nn.Module):
    """Subsampling and Conformer blocks; each block ends with a norm, and there is no norm after the last block."""

    def __init__(self, config: ConformerConfig, dropout: float = 0.0):
        super().__init__()
        self.config = config
        self.input_preprocessor = Subsampling(config.idim, config.d_model)
        self.layer_stack = nn.ModuleList(ConformerBlock(config, dropout) for _ in range(config.n_layers))

    def forward(self, features: Tensor, valid: Tensor | None = None, tap: Tap = no_tap) -> Tensor:
        """Encodes features [B, L, mels] to [B, ceil(L / 4), D].

        `valid` [B] counts each row's encoder frames that are speech (`families.conformer.valid_frames`); None means
        all. The other frames do not influence them.
        """
        x = tap("encoder.input", self.input_preprocessor(features))
        mask = None if valid is None else length_mask(valid, x.shape[1]).unsqueeze(-1).to(x.dtype)
        positions = relative_positions(x.shape[1], x.shape[2], x)
        for number, block in enumerate(self.layer_stack):
            x = tap(f"encoder.layers.{number}", block(x, positions, mask, tap, f"encoder.layers.{number}"))
        return tap("encoder.output", x)


class StackingAdaptor(nn.Module):
    """Stacks neighbouring encoder frames and maps them to the width of the language model.

    Frames at the end that do not fill a stack are dropped.
    """

    def __init__(self, size: int, width: int, downsample_rate: int):
        super().__init__()
        self.downsample_rate = downsample_rate
        self.linear1 = nn.Linear(size * downsample_rate, width)
        self.linear2 = nn.Linear(width, width)

    def forward(self, encoded: Tensor, tap: Tap = no_tap) -> Tensor:
        """Maps [B, T, D] to [B, T // rate, width]."""
        stacks = encoded.shape[1] // self.downsample_rate
        x = encoded[:, : stacks * self.downsample_rate].unflatten(1, (stacks, self.downsample_rate)).flatten(2)
        return tap("adaptor.output", self.linear2(F.relu(self.linear1(x))))
