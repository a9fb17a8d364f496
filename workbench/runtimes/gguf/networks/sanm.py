"""The SAN-M encoder as a ggml graph, with the tensor names of the published files.

Gao et al., "SAN-M: Memory Equipped Self-Attention for End-to-End Speech Recognition", Interspeech 2020. Axes: T frames,
D width; one chunk of speech, or several one behind the other. `bounds` are the first rows of these, and the end; it is
empty for a single chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from workbench.families.sanm.encoder import SanmConfig
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks.attention_stages import by_window, self_attention, show_fused


def sinusoid(frames: int, depth: int) -> np.ndarray:
    """Returns the position encoding [T, depth] in float32: sines of positions 1..T in the first half, cosines in the
    second.

    The rates fall from 1 to 1/10000 over depth/2 - 1 steps (Vaswani et al. 2017, tensor2tensor's variant).
    """
    pair_count = depth // 2
    rates = np.exp(np.arange(pair_count, dtype=np.float32) * np.float32(-np.log(10000.0) / (pair_count - 1)))
    angles = np.arange(1, frames + 1, dtype=np.float32)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def encoder_input(features: np.ndarray, config: SanmConfig) -> np.ndarray:
    """Returns the first layer's input: features [T, input], scaled, with positions added."""
    scaled = features * np.float32(config.output_size**0.5)
    scaled += sinusoid(*features.shape)
    return scaled


def encode_joined(engine: GraphRunner, inputs: Sequence[np.ndarray], config: SanmConfig) -> list[np.ndarray]:
    """Returns the encoder's output [T, D] for each chunk's input, made by `encoder_input`, from one pass.

    `GraphRunner.arithmetic_of` must be equal for all of them, so that each is encoded as it is alone.
    """
    bounds = [0, *accumulate(len(each) for each in inputs)]

    def build(g: Graph) -> dict[str, Tensor]:
        g.shortest_chunk = min(len(each) for each in inputs)
        x = g.input(np.concatenate(inputs))
        return {"encoded": encode(g, x, g.scope / "encoder", config, bounds)}

    encoded = engine.run(build)["encoded"]
    return [encoded[first:end] for first, end in pairwise(bounds)]


def encode(g: Graph, x: Tensor, scope: Scope, config: SanmConfig, bounds: Sequence[int] = ()) -> Tensor:
    """Encodes x [T, input], made by `encoder_input`, to [T, D]; taps the stages `encoder.*`."""
    x, number = g.tap("encoder.input", x), 0
    layers = [scope / "encoders0" / 0, *(scope / "encoders" / n for n in range(config.num_blocks - 1))]
    for layer in layers:
        x = sanm_layer(g, x, layer, config, f"encoder.layers.{number}", bounds)
        number += 1
    x = g.layer_norm(x, scope / "after_norm", config.norm_eps)
    if config.two_stages:
        x = g.tap("encoder.after_norm", x)
        for n in range(config.tp_blocks):
            x = sanm_layer(g, x, scope / "tp_encoders" / n, config, f"encoder.layers.{number}", bounds)
            number += 1
        x = g.layer_norm(x, scope / "tp_norm", config.norm_eps)
    g.expect_finite("encoder.output", x)
    return g.tap("encoder.output", x)


def sanm_layer(g: Graph, x: Tensor, scope: Scope, config: SanmConfig, stage: str, bounds: Sequence[int] = ()) -> Tensor:
    """Applies a pre-norm block, [T, in] to [T, D]: attention with memory, then feed-forward.

    In the first layer the width changes, so its attention has no residual connection.
    """
    h = g.tap(f"{stage}.input_norm", g.layer_norm(x, scope / "norm1", config.norm_eps))
    attended = sanm_attention(g, h, scope / "self_attn", config, stage, bounds)
    x = g.tap(f"{stage}.attention.residual", g.add(x, attended) if x.shape == attended.shape else attended)
    h = g.tap(f"{stage}.mlp_norm", g.layer_norm(x, scope / "norm2", config.norm_eps))
    return g.tap(stage, g.add(x, feed_forward(g, h, scope / "feed_forward", config.linear_units, f"{stage}.mlp")))


def sanm_attention(
    g: Graph, x: Tensor, scope: Scope, config: SanmConfig, stage: str, bounds: Sequence[int] = ()
) -> Tensor:
    """Applies self-attention with an FSMN memory over the values: [T, in] to [T, D]."""
    size, heads, prefix = config.output_size, config.attention_heads, f"{stage}.attention"
    fused = g.linear(x, scope / "linear_q_k_v", 3 * size)
    projected = show_fused(g, fused, heads, prefix)
    v = projected.value if projected else g.columns(fused, 2 * size, 3 * size)
    kernel = (scope / "fsmn_block").array("weight", (config.kernel_size, size))
    memory = g.tap(f"{stage}.fsmn", by_window(g, v, bounds, lambda part: g.fsmn(part, kernel, config.sanm_shift)))
    context = self_attention(g, fused, projected, heads, prefix, bounds)
    output = g.tap(f"{prefix}.output", g.linear(context, scope / "linear_out", size))
    return g.add(g.tap(prefix, output), memory)


def feed_forward(g: Graph, x: Tensor, scope: Scope, units: int, prefix: str) -> Tensor:
    """Applies two linear layers with a ReLU between: [T, D] to [T, D]; taps the stages `prefix.*`."""
    up = g.tap(f"{prefix}.up", g.linear(x, scope / "w_1", units))
    inner = g.tap(f"{prefix}.activation", g.relu(up))
    return g.tap(f"{prefix}.down", g.linear(inner, scope / "w_2", x.shape[-1]))
