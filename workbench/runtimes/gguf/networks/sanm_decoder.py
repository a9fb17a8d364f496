"""Paraformer's SAN-M decoder as a ggml graph: all tokens at once, no causal mask, no position encoding.

Gao et al., "Paraformer: Fast and Accurate Parallel Transformer for Non-autoregressive End-to-End Speech Recognition",
Interspeech 2022. Axes: N tokens, T encoder frames, D width. Tensor names are the published ones.
"""

from __future__ import annotations

from workbench.families.sanm.decoder import DecoderConfig
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks.attention_stages import attention, show_projected

NORM_EPS = 1e-12  # epsilon of every layer norm of this decoder, as in the original classes


def decode(
    g: Graph, embeddings: Tensor, encoded: Tensor, scope: Scope, config: DecoderConfig, stack: str = "decoder"
) -> Tensor:
    """Returns the output layer's input [N, D], from acoustic embeddings [N, D] and encoded frames [T, D].

    Taps the stages `stack.*`.
    """
    attending = config.att_layer_num
    x, number = attending_layers(g, embeddings, encoded, scope, config, stack, attending), attending
    for n in range(config.num_blocks - attending):
        stage = f"{stack}.layers.{number}"
        x = g.tap(stage, _remember(g, x, scope / "decoders2" / n, config, 0, stage))
        number += 1
    g.expect_finite(f"{stack}.layers.{number - 1}", x)
    stage = f"{stack}.layers.{number}"
    x = g.tap(stage, _norm_and_feed_forward(g, x, scope / "decoders3" / 0, config, stage))
    return g.tap(f"{stack}.output", g.layer_norm(x, scope / "after_norm", NORM_EPS))


def attending_layers(
    g: Graph, x: Tensor, encoded: Tensor, scope: Scope, config: DecoderConfig, stack: str, count: int
) -> Tensor:
    """Applies the first `count` layers, which attend to encoded frames [T, D]: [N, D] to [N, D]; taps
    `stack.layers.*`.
    """
    for number in range(count):
        layer, stage = scope / "decoders" / number, f"{stack}.layers.{number}"
        x, h = before_attention(g, x, layer, config, stage)
        attended = cross_attention(
            g, h, encoded, layer / "src_attn", config.attention_heads, f"{stage}.cross_attention"
        )
        x = g.tap(stage, g.add(x, attended))
    return x


def before_attention(g: Graph, x: Tensor, layer: Scope, config: DecoderConfig, stage: str) -> tuple[Tensor, Tensor]:
    """Applies the part of a layer in front of its attention; returns the residual stream, and what attention reads."""
    x = g.tap(f"{stage}.fsmn_residual", _remember(g, x, layer, config, config.sanm_shift, stage))
    return x, g.tap(f"{stage}.input_norm", g.layer_norm(x, layer / "norm3", NORM_EPS))


def _norm_and_feed_forward(g: Graph, x: Tensor, layer: Scope, config: DecoderConfig, stage: str) -> Tensor:
    """Applies a layer's norm and feed-forward without a residual; layers in `decoders3` consist of this alone."""
    h = g.tap(f"{stage}.mlp_norm", g.layer_norm(x, layer / "norm1", NORM_EPS))
    return feed_forward(g, h, layer / "feed_forward", config.linear_units, f"{stage}.mlp")


def _remember(g: Graph, x: Tensor, layer: Scope, config: DecoderConfig, shift: int, stage: str) -> Tensor:
    """Applies feed-forward and the FSMN memory over the tokens, with one residual around both."""
    h = g.layer_norm(_norm_and_feed_forward(g, x, layer, config, stage), layer / "norm2", NORM_EPS)
    h = g.tap(f"{stage}.fsmn_norm", h)
    kernel = (layer / "self_attn" / "fsmn_block").array("weight", (config.kernel_size, x.shape[-1]))
    return g.add(x, g.tap(f"{stage}.fsmn", g.fsmn(h, kernel, shift)))


def feed_forward(g: Graph, x: Tensor, scope: Scope, units: int, prefix: str) -> Tensor:
    """Applies linear, ReLU, layer norm over the hidden units, linear without bias: [N, D] to [N, D].

    Taps the stages `prefix.*`.
    """
    hidden = g.tap(f"{prefix}.activation", g.relu(g.tap(f"{prefix}.up", g.linear(x, scope / "w_1", units))))
    hidden = g.tap(f"{prefix}.hidden_norm", g.layer_norm(hidden, scope / "norm", NORM_EPS))
    return g.tap(f"{prefix}.down", g.linear(hidden, scope / "w_2", x.shape[-1], bias=False))


def queries_and_keys(g: Graph, x: Tensor, encoded: Tensor, scope: Scope) -> tuple[Tensor, Tensor]:
    """Returns the queries of tokens [N, D] and the keys of encoded frames [T, D], before they are split into heads."""
    size = x.shape[-1]
    keys = g.linear(encoded, scope / "linear_k_v", 2 * size, rows=slice(0, size))
    return g.linear(x, scope / "linear_q", size), keys


def cross_attention(g: Graph, x: Tensor, encoded: Tensor, scope: Scope, heads: int, prefix: str) -> Tensor:
    """Applies multi-head attention from tokens [N, D] to encoder frames [T, D]: [N, D]; taps the stages `prefix.*`."""
    size = x.shape[-1]
    q, k = queries_and_keys(g, x, encoded, scope)
    v = g.linear(encoded, scope / "linear_k_v", 2 * size, rows=slice(size, 2 * size))
    context = attention(g, show_projected(g, q, k, v, heads, prefix), prefix)
    return g.tap(f"{prefix}.output", g.linear(context, scope / "linear_out", size))
