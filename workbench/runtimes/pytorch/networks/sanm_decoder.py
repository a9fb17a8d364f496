"""Paraformer's SAN-M decoder in PyTorch: all tokens at once, no causal mask, no position encoding.

Gao et al., "Paraformer: Fast and Accurate Parallel Transformer for Non-autoregressive End-to-End Speech Recognition",
Interspeech 2022. Axes: B batch, N tokens, T encoder frames, D width. Parameter names are the published ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.families.sanm.decoder import DecoderConfig
from workbench.runtimes.pytorch.networks.sanm import FsmnMemory, length_mask
from workbench.runtimes.pytorch.tap import Tap, no_tap

NORM_EPS = 1e-12  # epsilon of every layer norm of this decoder, as in the original classes
Bias = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Changes logits by hotwords: (embeddings [B, N, D], hidden [B, N, D], logits [B, N, V], counts [B]) to [B, N, V]."""


class DecoderFeedForward(nn.Module):
    """Linear, ReLU, layer norm over the hidden units, linear without bias."""

    def __init__(self, size: int, units: int):
        super().__init__()
        self.w_1 = nn.Linear(size, units)
        self.w_2 = nn.Linear(units, size, bias=False)
        self.norm = nn.LayerNorm(units, eps=NORM_EPS)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D]."""
        return self.w_2(self.norm(F.relu(self.w_1(x), inplace=not self.training)))


class TokenMemory(nn.Module):
    """FSMN memory over the tokens; this decoder has it instead of self-attention."""

    def __init__(self, size: int, kernel_size: int, shift: int):
        super().__init__()
        self.fsmn_block = FsmnMemory(size, kernel_size, shift)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Maps x [B, N, D] to [B, N, D]; `mask` is [B, N, 1] or None."""
        return self.fsmn_block(x, mask)


class CrossAttention(nn.Module):
    """Multi-head attention from tokens to encoder frames."""

    def __init__(self, size: int, heads: int):
        super().__init__()
        self.heads = heads
        self.linear_q = nn.Linear(size, size)
        self.linear_k_v = nn.Linear(size, 2 * size)
        self.linear_out = nn.Linear(size, size)

    def forward(self, x: Tensor, encoded: Tensor, frames: Tensor | None) -> Tensor:
        """Maps x [B, N, D] to [B, N, D]; `encoded` is [B, T, D], `frames` is [B, T], True on real frames, or None."""
        key, value = self.linear_k_v(encoded).chunk(2, dim=-1)
        q, k, v = map(self._in_heads, (self.linear_q(x), key, value))
        keys = None if frames is None else frames[:, None, None, :]
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=keys)
        return self.linear_out(context.transpose(1, 2).reshape(x.shape))

    def weights(self, x: Tensor, encoded: Tensor) -> Tensor:
        """Returns the attention weights [B, heads, N, T] of x [B, N, D] to `encoded` [B, T, D]."""
        key, _ = self.linear_k_v(encoded).chunk(2, dim=-1)
        q, k = map(self._in_heads, (self.linear_q(x), key))
        return torch.softmax(q @ k.transpose(2, 3) * q.shape[-1] ** -0.5, dim=-1)

    def _in_heads(self, x: Tensor) -> Tensor:
        """Maps [B, rows, D] to [B, heads, rows, D / heads]."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class DecoderLayer(nn.Module):
    """Feed-forward, then token memory, then cross-attention.

    One residual connection goes around feed-forward and memory together. A layer without memory (`decoders3`) is a
    feed-forward without a residual.
    """

    def __init__(self, config: DecoderConfig, size: int, memory: bool, attention: bool, shift: int, dropout: float):
        super().__init__()
        self.feed_forward = DecoderFeedForward(size, config.linear_units)
        self.norm1 = nn.LayerNorm(size, eps=NORM_EPS)
        self.self_attn = TokenMemory(size, config.kernel_size, shift) if memory else None
        self.norm2 = nn.LayerNorm(size, eps=NORM_EPS) if memory else None
        self.src_attn = CrossAttention(size, config.attention_heads) if attention else None
        self.norm3 = nn.LayerNorm(size, eps=NORM_EPS) if attention else None
        self.dropout = dropout

    def forward(self, x: Tensor, mask: Tensor | None, encoded: Tensor, frames: Tensor | None) -> Tensor:
        """Maps x [B, N, D] to [B, N, D]; the masks as in `CrossAttention` and `TokenMemory`."""
        x = self.feed_forward_and_memory(x, mask)
        if self.src_attn is not None and self.norm3 is not None:
            x = x + F.dropout(self.src_attn(self.norm3(x), encoded, frames), self.dropout, self.training)
        return x

    def feed_forward_and_memory(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Applies feed-forward and memory with their residual: the part in front of the attention."""
        residual = x
        x = self.feed_forward(self.norm1(x))
        if self.self_attn is None or self.norm2 is None:
            return x
        return residual + F.dropout(self.self_attn(self.norm2(x), mask), self.dropout, self.training)

    def attention_weights(self, x: Tensor, encoded: Tensor) -> Tensor:
        """Returns the attention weights [B, heads, N, T] of the layer for its input x [B, N, D], without masks."""
        assert self.src_attn is not None and self.norm3 is not None, "asked of a layer without attention"
        return self.src_attn.weights(self.norm3(self.feed_forward_and_memory(x, None)), encoded)


class SanmDecoder(nn.Module):
    """Turns acoustic embeddings into token logits, with attention to the encoder.

    Without a vocabulary, it has no output layer, and gives hidden states.
    """

    def __init__(self, config: DecoderConfig, size: int, vocabulary: int | None, dropout: float = 0.0):
        super().__init__()
        attending = config.att_layer_num

        def layer(memory: bool, attention: bool, shift: int) -> DecoderLayer:
            return DecoderLayer(config, size, memory, attention, shift, dropout)

        self.decoders = nn.ModuleList(layer(True, True, config.sanm_shift) for _ in range(attending))
        if config.num_blocks > attending:
            self.decoders2 = nn.ModuleList(layer(True, False, 0) for _ in range(config.num_blocks - attending))
        self.decoders3 = nn.ModuleList([layer(False, False, 0)])
        self.after_norm = nn.LayerNorm(size, eps=NORM_EPS)
        if vocabulary is not None:
            self.output_layer = nn.Linear(size, vocabulary)

    @property
    def layers(self) -> list[DecoderLayer]:
        """All layers, in the order of the computation."""
        return [*self.decoders, *getattr(self, "decoders2", ()), *self.decoders3]

    def forward(
        self,
        encoded: Tensor,
        frames: Tensor | None,
        embeddings: Tensor,
        counts: Tensor | None,
        tap: Tap = no_tap,
        bias: Bias | None = None,
    ) -> Tensor:
        """Returns logits [B, N, V].

        Args:
            encoded: encoder output [B, T, D].
            frames: frames per row [B], or None if all rows are full.
            embeddings: acoustic embeddings [B, N, D].
            counts: tokens per row [B], or None if all rows are full.
            bias: changes the logits by hotwords.
        """
        hidden = self.hidden(encoded, frames, embeddings, counts, tap)
        logits = self.output_layer(hidden)
        return tap("logits", logits if bias is None else bias(embeddings, hidden, logits, counts))

    def hidden(
        self,
        encoded: Tensor,
        frames: Tensor | None,
        embeddings: Tensor,
        counts: Tensor | None,
        tap: Tap = no_tap,
        stack: str = "decoder",
    ) -> Tensor:
        """Returns the output layer's input [B, N, D]; taps the stages `stack.*`.

        The other arguments are those of `forward`.
        """
        frame_mask = None if frames is None else length_mask(frames, encoded.shape[1])
        token_mask = (
            None if counts is None else length_mask(counts, embeddings.shape[1]).unsqueeze(-1).to(embeddings.dtype)
        )
        x = embeddings
        for number, layer in enumerate(self.layers):
            x = tap(f"{stack}.layers.{number}", layer(x, token_mask, encoded, frame_mask))
        return tap(f"{stack}.output", self.after_norm(x))
