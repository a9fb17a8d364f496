"""Fun-ASR-Nano's encoder and adaptor inside vLLM: SAN-M blocks and transformer blocks on vLLM's parallel layers.

SAN-M is self-attention with an FSMN memory over the values (Gao et al., Interspeech 2020). Axes: B batch, T frames, D
width of the encoder, H width of the language model. This file knows neither vLLM's engine nor its requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.families.funasr_nano import ADAPTOR_EPS, AdaptorConfig, audio_tokens
from workbench.families.sanm import SanmConfig
from workbench.runtimes.vllm.models.batching import batches
from workbench.runtimes.vllm.models.layers import FeedForward, Memory, attention, heads_in, heads_out, linear, norm
from workbench.trace.recorder import Recorder

SEPARATE = {"linear_q": "q", "linear_k": "k", "linear_v": "v"}  # layers of the checkpoint that are one here

Tap = Callable[[str, Tensor], Tensor]


class SanmBlock(nn.Module):
    """Attention with memory, then feed-forward; without a residual connection around the first where widths differ."""

    def __init__(self, inputs: int, config: SanmConfig):
        super().__init__()
        size, heads = config.output_size, config.attention_heads
        self.head_size = size // heads
        self.residual = inputs == size
        self.self_attn = nn.ModuleDict(
            {
                "linear_q_k_v": heads_in(inputs, size, heads),
                "linear_out": heads_out(size, heads),
                "fsmn_block": Memory(size, heads, config.kernel_size, config.sanm_shift),
            }
        )
        self.feed_forward = FeedForward(size, config.linear_units)
        self.norm1 = norm(inputs, config.norm_eps)
        self.norm2 = norm(size, config.norm_eps)

    def forward(self, x: Tensor, keys: Tensor | None, tap: Tap, stage: str) -> Tensor:
        """x [B, T, inputs], keys [B, T] true on speech or None; returns [B, T, D]."""
        qkv = self.self_attn["linear_q_k_v"](self.norm1(x))
        memory = tap(f"{stage}.fsmn", self.self_attn["fsmn_block"](qkv.chunk(3, dim=-1)[2], keys))
        attended = tap(f"{stage}.attention", self.self_attn["linear_out"](attention(qkv, self.head_size, keys)))
        heard = attended + memory
        x = x + heard if self.residual else heard
        x = x + self.feed_forward(self.norm2(x))
        return tap(stage, x)


class Encoder(nn.Module):
    """The SAN-M encoder: one stage or two, a norm behind each."""

    def __init__(self, config: SanmConfig):
        super().__init__()
        self.config = config
        size = config.output_size
        self.encoders0 = nn.ModuleList([SanmBlock(config.input_size, config)])
        self.encoders = nn.ModuleList(SanmBlock(size, config) for _ in range(config.num_blocks - 1))
        self.after_norm = norm(size, config.norm_eps)
        if config.tp_blocks:
            self.tp_encoders = nn.ModuleList(SanmBlock(size, config) for _ in range(config.tp_blocks))
            self.tp_norm = norm(size, config.norm_eps)

    def forward(self, x: Tensor, keys: Tensor | None, tap: Tap) -> Tensor:
        """Features x [B, T, inputs] to [B, T, D]; keys as of `SanmBlock`."""
        x = x * math.sqrt(self.config.output_size)
        x = tap("encoder.input", x + positions(x.shape[1], x.shape[2], x.device))
        first = [*self.encoders0, *self.encoders]
        for number, block in enumerate(first):
            x = block(x, keys, tap, f"encoder.layers.{number}")
        x = self.after_norm(x)
        if self.config.tp_blocks:
            x = tap("encoder.after_norm", x)
            for number, block in enumerate(self.tp_encoders, len(first)):
                x = block(x, keys, tap, f"encoder.layers.{number}")
            x = self.tp_norm(x)
        return tap("encoder.output", x)


def positions(frames: int, depth: int, device: torch.device) -> Tensor:
    """Position encoding [frames, depth]: sines of the positions 1, 2 ... in the first half, cosines in the second.

    Their rates fall geometrically from 1 to 1/10000 (Vaswani et al. 2017).
    """
    half = depth // 2
    step = math.log(10000.0) / (half - 1)
    rates = torch.exp(torch.arange(half, dtype=torch.float32, device=device) * -step)
    angles = torch.outer(torch.arange(1, frames + 1, dtype=torch.float32, device=device), rates)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class AdaptorBlock(nn.Module):
    """Attention, then feed-forward, each behind a norm and with a residual connection."""

    def __init__(self, size: int, heads: int):
        super().__init__()
        self.head_size = size // heads
        self.self_attn = nn.ModuleDict({"qkv": heads_in(size, size, heads), "linear_out": heads_out(size, heads)})
        self.feed_forward = FeedForward(size, size // 4)
        self.norm1 = norm(size, ADAPTOR_EPS)
        self.norm2 = norm(size, ADAPTOR_EPS)

    def forward(self, x: Tensor, keys: Tensor | None) -> Tensor:
        """x [B, T, H], keys [B, T] true on speech or None; returns [B, T, H]."""
        qkv = self.self_attn["qkv"](self.norm1(x))
        x = x + self.self_attn["linear_out"](attention(qkv, self.head_size, keys))
        return x + self.feed_forward(self.norm2(x))


class Adaptor(nn.Module):
    """Stacked encoder frames through two linear layers and transformer blocks."""

    def __init__(self, config: AdaptorConfig):
        super().__init__()
        self.config = config
        self.linear1 = linear(config.encoder_dim * config.downsample_rate, config.ffn_dim)
        self.linear2 = linear(config.ffn_dim, config.llm_dim)
        self.blocks = nn.ModuleList(AdaptorBlock(config.llm_dim, config.attention_heads) for _ in range(config.n_layer))

    def forward(self, encoded: Tensor, lengths: Sequence[int], tap: Tap) -> Tensor:
        """[B, T, D] to [B, ceil(T / downsample_rate), H]; `lengths` counts each row's frames."""
        rate = self.config.downsample_rate
        if (own := speech(lengths, encoded)) is not None and rate > 1:
            encoded = encoded * own[..., None]  # a last stack ends in zeros, not in padding
        stacked = F.pad(encoded, (0, 0, 0, -encoded.shape[1] % rate)).unflatten(1, (-1, rate)).flatten(2)
        x = self.linear2(F.relu(self.linear1(stacked)))
        keys = speech([-(-length // rate) for length in lengths], x)
        for number, block in enumerate(self.blocks):
            x = tap(f"adaptor.layers.{number}", block(x, keys))
        return x


def speech(lengths: Sequence[int], x: Tensor) -> Tensor | None:
    """True on the own frames of each row of x [B, T, ...]; None where all of them are."""
    frames = x.shape[1]
    if all(length == frames for length in lengths):
        return None
    return torch.arange(frames, device=x.device)[None, :] < torch.tensor(lengths, device=x.device)[:, None]


class NanoTower(nn.Module):
    """Encoder and adaptor under the names of the checkpoint, float32.

    Must be made where vLLM's distributed state is initialised, as in a worker.
    """

    def __init__(self, encoder: SanmConfig, adaptor: AdaptorConfig):
        super().__init__()
        self.audio_encoder = Encoder(encoder)
        self.audio_adaptor = Adaptor(adaptor)

    def forward(
        self,
        features: Sequence[Tensor],
        lengths: Sequence[int],
        recorders: Sequence[Recorder | None] | None = None,
    ) -> list[Tensor]:
        """Embeddings [n, H] of each stretch, n as `families.funasr_nano.audio_tokens` counts them.

        Stretches of like length are computed together, padded to the longest of them; what a stretch gives does not
        depend on the others but for rounding.

        Args:
            features: of each stretch [T, inputs], after LFR and CMVN.
            lengths: frames of each, T.
            recorders: what the stages of each stretch go to, if anywhere: its own rows, in float32.
        """
        embeddings: list[Tensor] = [torch.empty(0)] * len(features)
        for chosen in batches(lengths, self.audio_encoder.config.attention_heads):
            frames = [lengths[n] for n in chosen]
            tap = self._tap([recorders[n] if recorders else None for n in chosen], frames)
            padded = torch.nn.utils.rnn.pad_sequence([features[n].float() for n in chosen], batch_first=True)
            encoded = self.audio_encoder(padded, speech(frames, padded), tap)
            adapted = tap("adaptor.output", self.audio_adaptor(encoded, frames, tap))
            for row, n in enumerate(chosen):
                embeddings[n] = adapted[row, : audio_tokens(lengths[n], self.audio_adaptor.config)]
        return embeddings

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Takes the tensors of `audio_encoder` and `audio_adaptor` by the checkpoint's names; returns its own of them.

        Raises `ValueError` for a name that there is not.
        """
        parameters = dict(self.named_parameters())
        loaded = set()
        for name, value in weights:
            parent, _, last = name.rpartition(".")
            layers, _, layer = parent.rpartition(".")
            own, shard = (f"{layers}.qkv.{last}", (SEPARATE[layer],)) if layer in SEPARATE else (name, ())
            if own not in parameters:
                raise ValueError(f"the tower has no tensor {name}")
            parameter = parameters[own]
            load = getattr(parameter, "weight_loader", None)
            if load is None:
                parameter.data.copy_(value)
            else:
                load(parameter, value, *shard)
            loaded.add(own)
        return loaded

    def _tap(self, recorders: Sequence[Recorder | None], frames: Sequence[int]) -> Tap:
        """Gives each recorder its stretch's own rows of the stages that it wants, and passes the values on."""
        asked = [(row, recorder) for row, recorder in enumerate(recorders) if recorder is not None]
        config = self.audio_adaptor.config

        def tap(stage: str, value: Tensor) -> Tensor:
            for row, recorder in asked:
                if recorder.wanted(stage):
                    rows = frames[row]
                    if stage == "adaptor.output":
                        rows = audio_tokens(rows, config)
                    elif stage.startswith("adaptor."):
                        rows = -(-rows // config.downsample_rate)
                    recorder.put(stage, value[row, :rows].detach().to("cpu", torch.float32, copy=True).numpy())
            return value

        return tap
