"""Fun-ASR-Nano's audio encoder in PyTorch: SAN-M encoder and adaptor, with the published parameter names.

Axes: B batch, T frames, D width of the encoder, H width of the language model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.families.sanm.encoder import SanmConfig
from workbench.families.speech_llm.funasr_nano import ADAPTOR_EPS, AdaptorConfig, audio_tokens
from workbench.runtimes.pytorch.networks.sanm import FeedForward, SanmEncoder, length_mask
from workbench.runtimes.pytorch.tap import Tap, no_tap


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, size: int, heads: int):
        super().__init__()
        self.heads = heads
        self.linear_q = nn.Linear(size, size)
        self.linear_k = nn.Linear(size, size)
        self.linear_v = nn.Linear(size, size)
        self.linear_out = nn.Linear(size, size)

    def forward(self, x: Tensor, keys: Tensor | None) -> Tensor:
        """Maps x [B, T, H] to [B, T, H]; `keys` [B, T] is true where there is speech, or is None."""
        q, k, v = (
            linear(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for linear in (self.linear_q, self.linear_k, self.linear_v)
        )
        mask = None if keys is None else keys[:, None, None, :]
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.linear_out(context.transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """Pre-norm block: attention, then feed-forward."""

    def __init__(self, size: int, heads: int):
        super().__init__()
        self.self_attn = Attention(size, heads)
        self.feed_forward = FeedForward(size, size // 4)
        self.norm1 = nn.LayerNorm(size, eps=ADAPTOR_EPS)
        self.norm2 = nn.LayerNorm(size, eps=ADAPTOR_EPS)

    def forward(self, x: Tensor, keys: Tensor | None) -> Tensor:
        """Maps [B, T, H] to [B, T, H]."""
        x = x + self.self_attn(self.norm1(x), keys)
        return x + self.feed_forward(self.norm2(x))


class Adaptor(nn.Module):
    """Two linear layers over stacked encoder frames, then transformer blocks.

    Args:
        config: its dimensions.
        part: the first word of its stages.
    """

    def __init__(self, config: AdaptorConfig, part: str = "adaptor"):
        super().__init__()
        self.config = config
        self.stack = f"{part}.layers"
        self.linear1 = nn.Linear(config.encoder_dim * config.downsample_rate, config.ffn_dim)
        self.linear2 = nn.Linear(config.ffn_dim, config.llm_dim)
        if config.n_layer:
            self.blocks = nn.ModuleList(
                TransformerBlock(config.llm_dim, config.attention_heads) for _ in range(config.n_layer)
            )

    def forward(self, encoded: Tensor, lengths: Tensor | None = None, tap: Tap = no_tap) -> Tensor:
        """Maps [B, T, D] to [B, ceil(T / downsample_rate), H]; `lengths` [B] counts each row's frames."""
        rate = self.config.downsample_rate
        if lengths is not None and rate > 1:  # a row's last stack would include its padding, which is not zero
            encoded = encoded.masked_fill(~length_mask(lengths, encoded.shape[1])[..., None], 0.0)
        x = F.pad(encoded, (0, 0, 0, -encoded.shape[1] % rate)).unflatten(1, (-1, rate)).flatten(2)
        x = self.linear2(F.relu(self.linear1(x)))
        keys = None if lengths is None else length_mask((lengths - 1) // rate + 1, x.shape[1])
        for number, block in enumerate(getattr(self, "blocks", ())):
            x = tap(f"{self.stack}.{number}", block(x, keys))
        return x


class NanoEncoder(nn.Module):
    """Maps speech features to the embeddings that are put into the prompt."""

    def __init__(self, encoder: SanmConfig, adaptor: AdaptorConfig, dropout: float = 0.0):
        super().__init__()
        self.audio_encoder = SanmEncoder(encoder, dropout)
        self.audio_adaptor = Adaptor(adaptor)

    def forward(self, features: Tensor, lengths: Tensor, tap: Tap = no_tap) -> tuple[Tensor, Tensor]:
        """Returns embeddings [B, tokens, H], and the number of embeddings of each row [B].

        Args:
            features: [B, T, input], after LFR.
            lengths: frames of each row [B].
        """
        padded = None if bool((lengths == features.shape[1]).all()) else lengths
        encoded = self.audio_encoder(features, padded, tap)
        adapted = self.audio_adaptor(encoded, padded, tap)
        tokens = torch.tensor([audio_tokens(int(length), self.audio_adaptor.config) for length in lengths])
        return tap("adaptor.output", adapted[:, : int(tokens.max())]), tokens
