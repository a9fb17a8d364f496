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

from workbench.families.sanm.encoder import SanmConfig
from workbench.families.speech_llm.funasr_nano import ADAPTOR_EPS, AdaptorConfig, audio_tokens
from workbench.runtimes.vllm.models.batching import batches
from workbench.runtimes.vllm.models.layers import FeedForward, Memory, attention, heads_in, heads_out, linear, norm
from workbench.trace.recorder import Recorder

# Separate layers of the checkpoint that are one layer here.
SEPARATE = {"linear_q": "q", "linear_k": "k", "linear_v": "v"}

Tap = Callable[[str, Tensor], Tensor]


class SanmBlock(nn.Module):
    """Attention with memory, then feed-forward; the attention has no residual connection if it changes the width."""

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
        """Maps x [B, T, inputs] to [B, T, D]; `keys` [B, T] is true on speech, or is None."""
        qkv = self.self_attn["linear_q_k_v"](self.norm1(x))
        memory = tap(f"{stage}.fsmn", self.self_attn["fsmn_block"](qkv.chunk(3, dim=-1)[2], keys))
        attended = tap(f"{stage}.attention", self.self_attn["linear_out"](attention(qkv, self.head_size, keys)))
        mixed = attended + memory
        x = x + mixed if self.residual else mixed
        x = x + self.feed_forward(self.norm2(x))
        return tap(stage, x)


class Encoder(nn.Module):
    """The SAN-M encoder: one stage or two, each followed by a norm."""

    def __init__(self, config: SanmConfig):
        super().__init__()
        self.config = config
        size = config.output_size
        self.encoders0 = nn.ModuleList([SanmBlock(config.input_size, config)])
        self.encoders = nn.ModuleList(SanmBlock(size, config) for _ in range(config.num_blocks - 1))
        self.after_norm = norm(size, config.norm_eps)
        if config.two_stages:
            self.tp_encoders = nn.ModuleList(SanmBlock(size, config) for _ in range(config.tp_blocks))
            self.tp_norm = norm(size, config.norm_eps)

    def forward(self, x: Tensor, keys: Tensor | None, tap: Tap) -> Tensor:
        """Maps features x [B, T, inputs] to [B, T, D]; `keys` as in `SanmBlock`."""
        x = x * math.sqrt(self.config.output_size)
        x = tap("encoder.input", x + positions(x.shape[1], x.shape[2], x.device))
        first = [*self.encoders0, *self.encoders]
        for number, block in enumerate(first):
            x = block(x, keys, tap, f"encoder.layers.{number}")
        x = self.after_norm(x)
        if self.config.two_stages:
            x = tap("encoder.after_norm", x)
            for number, block in enumerate(self.tp_encoders, len(first)):
                x = block(x, keys, tap, f"encoder.layers.{number}")
            x = self.tp_norm(x)
        return tap("encoder.output", x)


def positions(frames: int, depth: int, device: torch.device) -> Tensor:
    """Returns the position encoding [frames, depth]: sines of the positions 1, 2 ... in the first half, cosines in the
    second.

    The rates fall geometrically from 1 to 1/10000 (Vaswani et al. 2017).
    """
    pair_count = depth // 2
    step = math.log(10000.0) / (pair_count - 1)
    rates = torch.exp(torch.arange(pair_count, dtype=torch.float32, device=device) * -step)
    angles = torch.outer(torch.arange(1, frames + 1, dtype=torch.float32, device=device), rates)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class AdaptorBlock(nn.Module):
    """Attention, then feed-forward, each with a norm before it and a residual connection."""

    def __init__(self, size: int, heads: int):
        super().__init__()
        self.head_size = size // heads
        self.self_attn = nn.ModuleDict({"qkv": heads_in(size, size, heads), "linear_out": heads_out(size, heads)})
        self.feed_forward = FeedForward(size, size // 4)
        self.norm1 = norm(size, ADAPTOR_EPS)
        self.norm2 = norm(size, ADAPTOR_EPS)

    def forward(self, x: Tensor, keys: Tensor | None) -> Tensor:
        """Maps x [B, T, H] to [B, T, H]; `keys` [B, T] is true on speech, or is None."""
        qkv = self.self_attn["qkv"](self.norm1(x))
        x = x + self.self_attn["linear_out"](attention(qkv, self.head_size, keys))
        return x + self.feed_forward(self.norm2(x))


class Adaptor(nn.Module):
    """Stacks encoder frames, then applies two linear layers and transformer blocks."""

    def __init__(self, config: AdaptorConfig):
        super().__init__()
        self.config = config
        self.linear1 = linear(config.encoder_dim * config.downsample_rate, config.ffn_dim)
        self.linear2 = linear(config.ffn_dim, config.llm_dim)
        self.blocks = nn.ModuleList(AdaptorBlock(config.llm_dim, config.attention_heads) for _ in range(config.n_layer))

    def forward(self, encoded: Tensor, lengths: Sequence[int], tap: Tap) -> Tensor:
        """Maps [B, T, D] to [B, ceil(T / downsample_rate), H]; `lengths` counts each row's frames."""
        rate = self.config.downsample_rate
        if (speech_mask := speech(lengths, encoded)) is not None and rate > 1:
            encoded = encoded * speech_mask[..., None]  # the last stack is padded with zeros, not with padding frames
        stacked = F.pad(encoded, (0, 0, 0, -encoded.shape[1] % rate)).unflatten(1, (-1, rate)).flatten(2)
        x = self.linear2(F.relu(self.linear1(stacked)))
        keys = speech([-(-length // rate) for length in lengths], x)
        for number, block in enumerate(self.blocks):
            x = tap(f"adaptor.layers.{number}", block(x, keys))
        return x


def speech(lengths: Sequence[int], x: Tensor) -> Tensor | None:
    """Returns a mask of x [B, T, ...] that is true on each row's own frames; None if all frames are."""
    frames = x.shape[1]
    if all(length == frames for length in lengths):
        return None
    return torch.arange(frames, device=x.device)[None, :] < torch.tensor(lengths, device=x.device)[:, None]


class NanoTower(nn.Module):
    """Encoder and adaptor with the checkpoint's parameter names, in float32.

    Create it where vLLM's distributed state is initialised, as in a worker.
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
        """Returns the embeddings [n, H] of each chunk; `families.funasr_nano.audio_tokens` computes n.

        Chunks of similar length are computed together, padded to the longest; the others change a chunk's result by
        rounding only.

        Args:
            features: of each chunk [T, inputs], after LFR and CMVN.
            lengths: number of frames of each chunk, T.
            recorders: for each chunk's own rows of the stages in float32; None for no recording.
        """
        embeddings: list[Tensor] = [torch.empty(0)] * len(features)
        for batch in batches(lengths, self.audio_encoder.config.attention_heads):
            frames = [lengths[n] for n in batch]
            tap = self._tap([recorders[n] if recorders else None for n in batch], frames)
            padded = torch.nn.utils.rnn.pad_sequence([features[n].float() for n in batch], batch_first=True)
            encoded = self.audio_encoder(padded, speech(frames, padded), tap)
            adapted = tap("adaptor.output", self.audio_adaptor(encoded, frames, tap))
            for row, n in enumerate(batch):
                embeddings[n] = adapted[row, : audio_tokens(lengths[n], self.audio_adaptor.config)]
        return embeddings

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Loads the tensors of `audio_encoder` and `audio_adaptor` by the checkpoint's names; returns this network's
        names of them.

        Raises `ValueError` for an unknown name.
        """
        parameters = dict(self.named_parameters())
        loaded = set()
        for name, value in weights:
            parent, _, last = name.rpartition(".")
            layers, _, layer = parent.rpartition(".")
            own_name, shard = (f"{layers}.qkv.{last}", (SEPARATE[layer],)) if layer in SEPARATE else (name, ())
            if own_name not in parameters:
                raise ValueError(f"the tower has no tensor {name}")
            parameter = parameters[own_name]
            load = getattr(parameter, "weight_loader", None)
            if load is None:
                parameter.data.copy_(value)
            else:
                load(parameter, value, *shard)
            loaded.add(own_name)
        return loaded

    def _tap(self, recorders: Sequence[Recorder | None], frames: Sequence[int]) -> Tap:
        """Returns a tap that gives each recorder its chunk's own rows of the wanted stages, and returns values
        unchanged.
        """
        row_recorders = [(row, recorder) for row, recorder in enumerate(recorders) if recorder is not None]
        config = self.audio_adaptor.config

        def tap(stage: str, value: Tensor) -> Tensor:
            for row, recorder in row_recorders:
                if recorder.wanted(stage):
                    rows = frames[row]
                    if stage == "adaptor.output":
                        rows = audio_tokens(rows, config)
                    elif stage.startswith("adaptor."):
                        rows = -(-rows // config.downsample_rate)
                    recorder.put(stage, value[row, :rows].detach().to("cpu", torch.float32, copy=True).numpy())
            return value

        return tap
