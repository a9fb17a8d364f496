"""Paraformer's SAN-M decoder as a ggml graph: all tokens at once, no causal mask, no position encoding.

Gao et al., "Paraformer: Fast and Accurate Parallel Transformer for Non-autoregressive End-to-End Speech Recognition",
Interspeech 2022. Axes: N tokens, T encoder frames, D width. Tensor names are the published ones.
"""

from __future__ import annotations

from workbench.families.paraformer import DecoderConfig
from workbench.runtimes.gguf.graph import Graph
from workbench.runtimes.gguf.weights import Scope, Tensor

NORM_EPS = 1e-12  # epsilon of every layer norm of this decoder, as in the original classes


def decode(g: Graph, embeddings: Tensor, encoded: Tensor, scope: Scope, config: DecoderConfig) -> Tensor:
    """Returns the output layer's input [N, D], from acoustic embeddings [N, D] and encoded frames [T, D].

    Taps the stages `decoder.*`.
    """
    x, number = embeddings, 0
    attending = config.att_layer_num
    for n in range(attending):
        layer = scope / "decoders" / n
        x = _remember(g, x, layer, config, config.sanm_shift)
        h = g.layer_norm(x, layer / "norm3", NORM_EPS)
        x = g.add(x, cross_attention(g, h, encoded, layer / "src_attn", config.attention_heads))
        x = g.tap(f"decoder.layers.{number}", x)
        number += 1
    for n in range(config.num_blocks - attending):
        x = g.tap(f"decoder.layers.{number}", _remember(g, x, scope / "decoders2" / n, config, 0))
        number += 1
    x = g.tap(f"decoder.layers.{number}", _transformed(g, x, scope / "decoders3" / 0, config))
    return g.tap("decoder.output", g.layer_norm(x, scope / "after_norm", NORM_EPS))


def _transformed(g: Graph, x: Tensor, layer: Scope, config: DecoderConfig) -> Tensor:
    """Applies a layer's norm and feed-forward without a residual; layers in `decoders3` consist of this alone."""
    return feed_forward(g, g.layer_norm(x, layer / "norm1", NORM_EPS), layer / "feed_forward", config.linear_units)


def _remember(g: Graph, x: Tensor, layer: Scope, config: DecoderConfig, shift: int) -> Tensor:
    """Applies feed-forward and the FSMN memory over the tokens, with one residual around both."""
    h = g.layer_norm(_transformed(g, x, layer, config), layer / "norm2", NORM_EPS)
    kernel = (layer / "self_attn" / "fsmn_block").array("weight", (config.kernel_size, x.shape[-1]))
    return g.add(x, g.fsmn(h, kernel, shift))


def feed_forward(g: Graph, x: Tensor, scope: Scope, units: int) -> Tensor:
    """Applies linear, ReLU, layer norm over the hidden units, linear without bias: [N, D] to [N, D]."""
    hidden = g.layer_norm(g.relu(g.linear(x, scope / "w_1", units)), scope / "norm", NORM_EPS)
    return g.linear(hidden, scope / "w_2", x.shape[-1], bias=False)


def cross_attention(g: Graph, x: Tensor, encoded: Tensor, scope: Scope, heads: int) -> Tensor:
    """Applies multi-head attention from tokens [N, D] to encoder frames [T, D]: [N, D]."""
    size = x.shape[-1]
    halves = (slice(0, size), slice(size, 2 * size))
    k, v = (g.linear(encoded, scope / "linear_k_v", 2 * size, rows=half) for half in halves)
    context = g.attention(g.linear(x, scope / "linear_q", size), k, v, heads)
    return g.linear(context, scope / "linear_out", size)
