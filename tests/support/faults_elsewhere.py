"""Faults of the other families, planted as those of `tests.support.faults`: a few each, where their networks differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from tests.support.faults import Parts, Planted, Planter


def no_tail(parts: Parts) -> Planted:
    """Paraformer: no weight is added behind the last frame, so that a token begun at the end does not fire."""
    predictor = parts.network.predictor
    assert predictor.config.tail_threshold > 0
    parts.set(predictor, "config", replace(predictor.config, tail_threshold=0.0))
    return Planted("predictor.alphas")


def late_fire(parts: Parts) -> Planted:
    """Paraformer: a token fires at the threshold 1.05."""
    from workbench.runtimes.pytorch.networks import cif

    right = cif.fire
    parts.set(cif, "fire", lambda hidden, alphas, tokens: right(hidden, alphas / 1.05, tokens))
    return Planted("predictor.embeddings")


def decoder_memory(parts: Parts) -> Planted:
    """Paraformer: the memory of a block of the decoder looks a token further ahead."""
    blocks = parts.network.decoder.decoders
    number = parts.one_of(len(blocks))
    memory = blocks[number].self_attn.fsmn_block
    left, right = memory.padding
    parts.set(memory, "padding", (left - 1, right + 1))
    return Planted(f"decoder.layers.{number}")


def decoder_attention(parts: Parts) -> Planted:
    """Paraformer: keys and values of the attention to the encoder have changed places."""
    blocks = parts.network.decoder.decoders
    number = parts.one_of(len(blocks))
    linear = blocks[number].src_attn.linear_k_v
    parts.set(linear, "weight", torch.cat(linear.weight.detach().chunk(2)[::-1]))
    return Planted(f"decoder.layers.{number}")


def no_output_bias(parts: Parts) -> Planted:
    """Paraformer: the layer of the logits has lost its bias."""
    layer = parts.network.decoder.output_layer
    parts.set(layer, "bias", torch.zeros_like(layer.bias))
    return Planted("logits")


def position_biases(parts: Parts) -> Planted:
    """FireRedASR: the two biases of the relative positions have changed places in a block."""
    blocks = parts.encoder.layer_stack
    number = parts.one_of(len(blocks))
    attention = blocks[number].mhsa
    one, other = attention.pos_bias_u.detach(), attention.pos_bias_v.detach()
    parts.set(attention, "pos_bias_u", other)
    parts.set(attention, "pos_bias_v", one)
    return Planted(f"encoder.layers.{number}.attention")


def shifted_kernel(parts: Parts) -> Planted:
    """FireRedASR: the kernel of a block's convolution is a tap late."""
    blocks = parts.encoder.layer_stack
    number = parts.one_of(len(blocks))
    layer = blocks[number].conv.depthwise_conv
    parts.set(layer, "weight", layer.weight.detach().roll(1, dims=2))
    return Planted(f"encoder.layers.{number}.convolution")


def whole_feed_forward(parts: Parts) -> Planted:
    """FireRedASR: the whole of a block's last feed-forward is added, not half of it."""
    blocks = parts.encoder.layer_stack
    number = parts.one_of(len(blocks))
    last = blocks[number].ffn2.net[4]
    parts.set(last, "weight", 2 * last.weight.detach())
    parts.set(last, "bias", 2 * last.bias.detach())
    return Planted(f"encoder.layers.{number}")


def stacked_backwards(parts: Parts) -> Planted:
    """FireRedASR: the adapter takes the frames of a stack in the opposite order."""
    adaptor = parts.network.encoder_projector
    weight = adaptor.linear1.weight.detach().unflatten(1, (adaptor.downsample_rate, -1))
    parts.set(adaptor.linear1, "weight", weight.flip(1).flatten(1))
    return Planted("adaptor.output")


def no_query_bias(parts: Parts) -> Planted:
    """FireRedASR's Qwen2: a block's queries have lost their bias."""
    layers = parts.language.model.layers
    number = parts.one_of(len(layers))
    linear = layers[number].self_attn.q_proj
    parts.set(linear, "bias", torch.zeros_like(linear.bias))
    return Planted(f"llm.layers.{number}")


def exchanged_heads(parts: Parts) -> Planted:
    """A language model: the queries of a block's first and last head, which share no keys, have changed places."""
    layers = parts.language.model.layers
    number = parts.one_of(len(layers))
    linear = layers[number].self_attn.q_proj
    heads = linear.weight.detach().unflatten(0, (parts.language.config.num_attention_heads, -1))
    order = [len(heads) - 1, *range(1, len(heads) - 1), 0]
    parts.set(linear, "weight", heads[order].flatten(0, 1))
    return Planted(f"llm.layers.{number}")


def no_query_norm(parts: Parts) -> Planted:
    """Qwen3: a block's queries are not normalised."""
    layers = parts.language.model.layers
    number = parts.one_of(len(layers))
    parts.set(layers[number].self_attn, "q_norm", nn.Identity())
    return Planted(f"llm.layers.{number}")


def no_final_norm(parts: Parts) -> Planted:
    """A language model: what the last block gives is not normalised."""
    parts.set(parts.language.model.norm, "forward", lambda x: x)
    return Planted("llm.norm")


def one_rms_epsilon(parts: Parts) -> Planted:
    """A language model: one norm has the epsilon 1e-3."""
    layers = parts.language.model.layers
    number = 1 + parts.one_of(len(layers) - 1)
    parts.set(layers[number].post_attention_layernorm, "variance_epsilon", 1e-3)
    return Planted(f"llm.layers.{number}")


ELSEWHERE: Mapping[str, Mapping[str, Planter]] = {
    "paraformer": {
        "no tail threshold": no_tail,
        "fires late": late_fire,
        "decoder memory shifted": decoder_memory,
        "keys and values exchanged": decoder_attention,
        "no output bias": no_output_bias,
    },
    "fireredasr": {
        "relative position biases exchanged": position_biases,
        "convolution kernel shifted": shifted_kernel,
        "feed-forward not halved": whole_feed_forward,
        "frames stacked backwards": stacked_backwards,
        "no bias of the queries": no_query_bias,
    },
    "causal_lm": {
        "two heads' queries exchanged": exchanged_heads,
        "queries not normalised": no_query_norm,
        "missing final norm": no_final_norm,
        "one RMS epsilon 1e-3": one_rms_epsilon,
    },
}
