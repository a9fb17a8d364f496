"""The audio parts of a SpeechLM in a GGUF file: audio tower with adaptor, and Xcodec with codebooks, decoder, encoder.

Kernels are stored with the channels of the input last, so that a convolution is a matrix product over neighbouring
frames. Weight normalisation is folded into the weights. Queries, keys and values share a matrix. llama.cpp takes names
of fewer than 64 characters only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.conversion.plan import PlannedTensor, Value
from workbench.core.errors import BadInput, message_of
from workbench.families.speechlm.gguf import (
    ACTIVATIONS,
    CODEC,
    SEMANTIC,
    TOWER,
    CodecSizes,
    SemanticSizes,
    TowerSizes,
    stated,
)
from workbench.families.speechlm.model import TOWER_PREFIX
from workbench.families.speechlm.parts import Tower
from workbench.formats.quantization import Kind
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions, release_pages
from workbench.runtimes.pytorch.checkpoints.weights import build, check_tensors
from workbench.runtimes.pytorch.networks.xcodec import new_name
from workbench.runtimes.pytorch.speechlm_tower import tower_network

ADAPTOR = "adaptor.continuous_audio"
ACTIVATION_NAMES = {
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}  # transformers' names of `ACTIVATIONS`
NO_ENCODER = (
    "the file has no encoder of the codec, because GGUF cannot hold its semantic model, {model}; earlier speech of the "
    "assistant must come with its codec streams"
)


@dataclass(frozen=True, eq=False)
class AudioPart:
    """The keys and tensors of a part."""

    values: dict[str, Value]
    tensors: list[PlannedTensor]
    notes: tuple[str, ...] = ()


def plan_tower(
    tower: Tower, tensors: Mapping[str, Tensor], hidden: int, where: str, files: Sequence[Path] = ()
) -> AudioPart:
    """Plans the audio tower and the adaptor: keys and tensors `tower.*`.

    Args:
        tensors: by the checkpoint's names (`SpeechLmTensors.audio`), mapped from `files`.
        hidden: width of the language model.
        where: the name of the weights in messages.

    Raises `BadInput` for settings that describe no tower, or for missing, extra or misshapen tensors.
    """
    network = tower_network(tower, hidden, where)
    check_tensors(network.state_dict(), tensors, where, described_in="its configuration")
    config: Any = network.get_submodule(TOWER_PREFIX.rstrip(".")).config
    activation = ACTIVATION_NAMES.get(config.activation_function)
    if activation is None:
        raise BadInput(
            f"the audio tower of {where} has the activation {config.activation_function!r:.80}; a GGUF file takes "
            f"{', '.join(ACTIVATIONS)}"
        )
    sizes = TowerSizes(
        bins=config.num_mel_bins,
        channels=config.downsample_hidden_size,
        width=config.d_model,
        layers=config.encoder_layers,
        heads=config.encoder_attention_heads,
        units=config.encoder_ffn_dim,
        output=config.output_dim,
        hidden=hidden,
        activation=activation,
    )
    draft = _Draft(tensors, files)
    for number in range(3):
        # PyTorch's kernel is over bands, then frames.
        draft.kernel(f"{TOWER}conv.{number}", f"{TOWER_PREFIX}conv2d{number + 1}", (0, 3, 2, 1))
    draft.by_band(f"{TOWER}conv_out.weight", f"{TOWER_PREFIX}conv_out.weight", sizes.channels)
    for number in range(sizes.layers):
        old, new = f"{TOWER_PREFIX}layers.{number}", f"{TOWER}layers.{number}"
        draft.attention(new, f"{old}.self_attn")
        draft.weight_and_bias(f"{new}.attn_norm", f"{old}.self_attn_layer_norm")
        draft.linear(f"{new}.fc1", f"{old}.fc1")
        draft.linear(f"{new}.fc2", f"{old}.fc2")
        draft.weight_and_bias(f"{new}.ffn_norm", f"{old}.final_layer_norm")
    draft.weight_and_bias(f"{TOWER}norm", f"{TOWER_PREFIX}ln_post")
    draft.linear(f"{TOWER}proj1", f"{TOWER_PREFIX}proj1")
    draft.linear(f"{TOWER}proj2", f"{TOWER_PREFIX}proj2")
    draft.linear(f"{TOWER}adaptor", ADAPTOR)
    return AudioPart(stated(sizes, TOWER), draft.planned)


def plan_codec(
    settings: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    streams: int,
    where: str,
    files: Sequence[Path] = (),
) -> AudioPart:
    """Plans the codec: keys and tensors `codec.*`. Everything but HuBERT's linear layers is f32 in every file.

    Args:
        settings: of its `config.json`; empty for transformers' defaults.
        tensors: by transformers' names (`SpeechLmTensors.codec`, or its own directory's), mapped from `files`.
        streams: the number of codebooks that the language model uses, from the first on; the file has no others.
        where: the name of the weights in messages.

    Raises `BadInput` for settings that describe no codec, or for missing, extra or misshapen tensors. If the semantic
    model is not one that the GGUF runtime computes, the file has no encoder, and a note says so.
    """
    from transformers import XcodecConfig, XcodecModel

    tensors = {new_name(name): value for name, value in tensors.items()}
    try:
        config: Any = XcodecConfig(**dict(settings))
        network = build(XcodecModel, config)
    except Exception as error:  # transformers raises many kinds
        raise BadInput(f"the configuration of the codec of {where} describes no codec: {message_of(error)}") from error
    check_tensors(network.state_dict(), tensors, f"{where}, codec", described_in="its configuration")
    if len(network.quantizer.quantizers) < streams:
        raise BadInput(
            f"the codec of {where} has {len(network.quantizer.quantizers)} codebooks; the language model has {streams} "
            "streams; expected at least as many codebooks"
        )
    acoustic, semantic = config.acoustic_model_config, config.semantic_model_config
    encodes = _is_supported(semantic)
    sizes = CodecSizes(
        sample_rate=config.sample_rate,
        codes=config.codebook_size,
        codebooks=streams,
        acoustic_width=acoustic.hidden_size,
        decoder_width=acoustic.decoder_hidden_size,
        upsampling=tuple(acoustic.upsampling_ratios),
        encoder_width=acoustic.encoder_hidden_size,
        downsampling=tuple(acoustic.downsampling_ratios),
        semantic_width=semantic.hidden_size,
        encodes=encodes,
    )
    draft = _Draft(tensors, files)
    for number in range(streams):
        draft.exact(f"{CODEC}codebooks.{number}.weight", f"quantizer.quantizers.{number}.codebook.embed")
    draft.weight_and_bias(f"{CODEC}fc2", "fc2")
    _decoder(draft, len(sizes.upsampling))
    if not encodes:
        return AudioPart(stated(sizes, CODEC), draft.planned, (NO_ENCODER.format(model=_kind(semantic)),))
    draft.weight_and_bias(f"{CODEC}fc", "fc")
    _encoder(draft, len(sizes.downsampling))
    semantic_sizes = _semantic(draft, config)
    return AudioPart({**stated(sizes, CODEC), **stated(semantic_sizes, SEMANTIC)}, draft.planned)


def _decoder(draft: _Draft, blocks: int) -> None:
    old, new = "acoustic_decoder", f"{CODEC}decoder"
    draft.kernel(f"{new}.conv1", f"{old}.conv1")
    for number in range(blocks):
        block, name = f"{old}.block.{number}", f"{new}.block.{number}"
        draft.snake(f"{name}.snake", f"{block}.snake1")
        draft.upsampling(f"{name}.up", f"{block}.conv_t1")
        _units(draft, name, block)
    draft.snake(f"{new}.snake", f"{old}.snake1")
    draft.kernel(f"{new}.conv2", f"{old}.conv2")


def _encoder(draft: _Draft, blocks: int) -> None:
    old, new = "acoustic_encoder", f"{CODEC}encoder"
    draft.kernel(f"{new}.conv1", f"{old}.conv1")
    for number in range(blocks):
        block, name = f"{old}.block.{number}", f"{new}.block.{number}"
        _units(draft, name, block)
        draft.snake(f"{name}.snake", f"{block}.snake1")
        draft.kernel(f"{name}.down", f"{block}.conv1")
    draft.snake(f"{new}.snake", f"{old}.snake1")
    draft.kernel(f"{new}.conv2", f"{old}.conv2")


def _units(draft: _Draft, name: str, block: str) -> None:
    """Plans the three residual units of a block of the encoder or decoder."""
    for unit in range(3):
        old, new = f"{block}.res_unit{unit + 1}", f"{name}.res.{unit}"
        for number in (1, 2):
            draft.snake(f"{new}.snake{number}", f"{old}.snake{number}")
            draft.kernel(f"{new}.conv{number}", f"{old}.conv{number}")


def _is_supported(semantic: Any) -> bool:
    """Returns whether the GGUF runtime computes this semantic model: HuBERT without rare variants."""
    return (
        semantic.model_type == "hubert"
        and not getattr(semantic, "conv_pos_batch_norm", False)
        and getattr(semantic, "adapter_attn_dim", None) is None
        and semantic.hidden_act == semantic.feat_extract_activation == "gelu"
    )


def _kind(semantic: Any) -> str:
    """Returns the name of a semantic model that the GGUF runtime does not compute."""
    return "a rare variant of HuBERT" if semantic.model_type == "hubert" else str(semantic.model_type)


def _semantic(draft: _Draft, config: Any) -> SemanticSizes:
    """Plans HuBERT and the convolutions behind it, and returns their sizes."""
    semantic, old = config.semantic_model_config, "semantic_model"
    for number in range(len(semantic.conv_dim)):
        layer = f"{old}.feature_extractor.conv_layers.{number}"
        draft.kernel(f"{SEMANTIC}conv.{number}", f"{layer}.conv")
        if f"{layer}.layer_norm.weight" in draft.tensors:
            draft.weight_and_bias(f"{SEMANTIC}conv.{number}.norm", f"{layer}.layer_norm")
    if semantic.feat_proj_layer_norm:
        draft.weight_and_bias(f"{SEMANTIC}projection_norm", f"{old}.feature_projection.layer_norm")
    draft.linear(f"{SEMANTIC}projection", f"{old}.feature_projection.projection", Kind.TABLE)
    draft.position(f"{SEMANTIC}position", f"{old}.encoder.pos_conv_embed.conv", semantic.num_conv_pos_embedding_groups)
    if not semantic.do_stable_layer_norm:
        draft.weight_and_bias(f"{SEMANTIC}norm", f"{old}.encoder.layer_norm")
    for number in range(semantic.num_hidden_layers):
        layer, name = f"{old}.encoder.layers.{number}", f"{SEMANTIC}layers.{number}"
        draft.attention(name, f"{layer}.attention", Kind.TABLE)
        draft.weight_and_bias(f"{name}.attn_norm", f"{layer}.layer_norm")
        draft.linear(f"{name}.fc1", f"{layer}.feed_forward.intermediate_dense", Kind.TABLE)
        draft.linear(f"{name}.fc2", f"{layer}.feed_forward.output_dense", Kind.TABLE)
        draft.weight_and_bias(f"{name}.ffn_norm", f"{layer}.final_layer_norm")
    draft.kernel(f"{CODEC}branch.conv", "encoder_semantic.conv")
    for number in range(len(config.strides)):
        block, name = f"encoder_semantic.conv_blocks.{number}", f"{CODEC}branch.{number}"
        for unit in range(len(config.block_dilations)):
            for conv in ("conv1", "conv2"):
                draft.kernel(f"{name}.res.{unit}.{conv}", f"{block}.res_units.{unit}.{conv}")
        draft.kernel(f"{name}.conv", f"{block}.conv")
    return SemanticSizes(
        widths=tuple(semantic.conv_dim),
        kernels=tuple(semantic.conv_kernel),
        strides=tuple(semantic.conv_stride),
        biased=semantic.conv_bias,
        norm=semantic.feat_extract_norm,
        projection_norm=semantic.feat_proj_layer_norm,
        layers=semantic.num_hidden_layers,
        heads=semantic.num_attention_heads,
        units=semantic.intermediate_size,
        epsilon=semantic.layer_norm_eps,
        stable=semantic.do_stable_layer_norm,
        position_kernel=semantic.num_conv_pos_embeddings,
        position_groups=semantic.num_conv_pos_embedding_groups,
        kernel=config.kernel_size,
        unit_kernel=config.unit_kernel_size,
        dilations=tuple(config.block_dilations),
        branch_widths=tuple(int(semantic.hidden_size * ratio) for ratio in config.channel_ratios),
        branch_strides=tuple(config.strides),
    )


class _Draft:
    """Collects planned tensors.

    Arguments `new` are names in the file, and `old` names in the checkpoint, both without `.weight`.
    """

    def __init__(self, tensors: Mapping[str, Tensor], files: Sequence[Path]):
        self.tensors = tensors
        self.planned: list[PlannedTensor] = []
        self._regions = mapped_regions(*files)

    def _plan(
        self, new: str, shape: Sequence[int], part: Callable[[int, int], Tensor], kind: Kind, *source_tensors: Tensor
    ) -> None:
        """Plans a tensor whose rows `part` computes. The memory of the tensors that it reads is released afterwards."""

        def rows(first: int, last: int) -> np.ndarray:
            values: np.ndarray = part(first, last).detach().to(torch.float32, copy=True).contiguous().numpy()
            for tensor in source_tensors:
                release_pages(tensor, self._regions)
            return values

        self.planned.append(PlannedTensor(new, tuple(shape), kind, rows))

    def exact(self, new: str, old: str) -> None:
        """Plans a tensor without a change, in f32. Both names are complete."""
        tensor = self.tensors[old]
        self._plan(new, tensor.shape, lambda first, last: tensor[first:last], Kind.EXACT, tensor)

    def weight_and_bias(self, new: str, old: str) -> None:
        """Plans weight and bias in f32."""
        self.exact(f"{new}.weight", f"{old}.weight")
        self.exact(f"{new}.bias", f"{old}.bias")

    def linear(self, new: str, old: str, kind: Kind = Kind.MATRIX) -> None:
        """Plans a linear layer with a bias."""
        tensor = self.tensors[f"{old}.weight"]
        self._plan(f"{new}.weight", tensor.shape, lambda first, last: tensor[first:last], kind, tensor)
        self.exact(f"{new}.bias", f"{old}.bias")

    def attention(self, new: str, old: str, kind: Kind = Kind.MATRIX) -> None:
        """Plans `attn_qkv`, whose rows are those of queries, keys and values, and `attn_out`."""
        for parameter, role in (("weight", kind), ("bias", Kind.EXACT)):
            parts = [self.tensors[f"{old}.{name}_proj.{parameter}"] for name in "qkv"]
            shape = 3 * len(parts[0]), *parts[0].shape[1:]

            def part(first: int, end: int, parts: list[Tensor] = parts) -> Tensor:
                return torch.cat(parts)[first:end]

            self._plan(f"{new}.attn_qkv.{parameter}", shape, part, role, *parts)
        self.linear(f"{new}.attn_out", f"{old}.out_proj", kind)

    def kernel(self, new: str, old: str, order: Sequence[int] = (0, 2, 1)) -> None:
        """Plans a convolution: kernel [out, in, taps] as [out, taps, in], or in another order; and its bias, if any."""
        tensor = self.tensors[f"{old}.weight"]
        shape = [tensor.shape[axis] for axis in order]
        self._plan(f"{new}.weight", shape, lambda first, last: tensor[first:last].permute(*order), Kind.EXACT, tensor)
        if f"{old}.bias" in self.tensors:
            self.exact(f"{new}.bias", f"{old}.bias")

    def snake(self, new: str, old: str) -> None:
        """Plans the frequencies [channels] of a Snake activation."""
        tensor = self.tensors[f"{old}.alpha"].flatten()
        self._plan(f"{new}.alpha", tensor.shape, lambda first, last: tensor[first:last], Kind.EXACT, tensor)

    def upsampling(self, new: str, old: str) -> None:
        """Plans a transposed convolution of stride s and kernel 2 s: [in, out, 2 s] as [s, out, 2, in].

        The third axis is the earlier and the present frame of the input.
        """
        tensor = self.tensors[f"{old}.weight"]
        width, out, taps = tensor.shape
        step = taps // 2

        def part(first: int, last: int) -> Tensor:
            phases = [
                torch.stack([tensor[:, :, r + step], tensor[:, :, r]]).permute(2, 0, 1) for r in range(first, last)
            ]
            return torch.stack(phases)

        self._plan(f"{new}.weight", (step, out, 2, width), part, Kind.EXACT, tensor)
        self.exact(f"{new}.bias", f"{old}.bias")

    def position(self, new: str, old: str, groups: int) -> None:
        """Plans HuBERT's position convolution: [out, in, taps] as [groups, out / groups, taps, in].

        Its weight normalisation is folded in; each norm is over the first two axes.
        """
        gain, direction = (self.tensors[f"{old}.parametrizations.weight.original{number}"] for number in (0, 1))
        out, width, taps = direction.shape

        def part(first: int, last: int) -> Tensor:
            norms = direction.float().pow(2).sum((0, 1), keepdim=True).sqrt()
            kernel = (direction.float() * (gain.float() / norms)).permute(0, 2, 1)
            return kernel.reshape(groups, out // groups, taps, width)[first:last]

        self._plan(f"{new}.weight", (groups, out // groups, taps, width), part, Kind.EXACT, gain, direction)
        self.exact(f"{new}.bias", f"{old}.bias")

    def by_band(self, new: str, old: str, channels: int) -> None:
        """Plans a matrix whose columns are ordered by channel and band, in the order of band and channel. Both names
        are complete.
        """
        tensor = self.tensors[old]
        out, width = tensor.shape

        def part(first: int, last: int) -> Tensor:
            return tensor[first:last].reshape(-1, channels, width // channels).transpose(1, 2).flatten(1)

        self._plan(new, (out, width), part, Kind.MATRIX, tensor)
