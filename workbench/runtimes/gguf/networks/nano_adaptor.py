"""Fun-ASR-Nano's adaptor as a ggml graph: encoder frames to the embeddings that are put into the prompt.

The CTC branch is a network of the same kind. Axes: T frames, D width of the encoder, H width of the result; one
recording at a time.
"""

from __future__ import annotations

from workbench.families.speech_llm.funasr_nano import ADAPTOR_EPS, AdaptorConfig
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks.attention_stages import attention, show_projected
from workbench.runtimes.gguf.networks.sanm import feed_forward


def adapt(g: Graph, encoded: Tensor, scope: Scope, config: AdaptorConfig, tokens: int) -> Tensor:
    """Maps encoder frames [T, D] to embeddings [tokens, H], the first rows of `transform`; taps `adaptor.*`."""
    return g.tap("adaptor.output", g.rows(transform(g, encoded, scope, config, "adaptor"), 0, tokens))


def transform(g: Graph, encoded: Tensor, scope: Scope, config: AdaptorConfig, part: str) -> Tensor:
    """Applies two linear layers to stacked frames [T, D], padded with zeros, then transformer blocks:
    [ceil(T / downsample_rate), H].

    Taps the stages `layers.*` of the part of the network, such as `adaptor`.
    """
    (frames, size), rate = encoded.shape, config.downsample_rate
    if rate > 1:
        lacking = -frames % rate
        padded = g.pad_frames(encoded, 0, lacking) if lacking else encoded
        encoded = g.reshape(padded, ((frames + lacking) // rate, rate * size))
    x = g.linear(g.relu(g.linear(encoded, scope / "linear1", config.ffn_dim)), scope / "linear2", config.llm_dim)
    for number in range(config.n_layer):
        stage = f"{part}.layers.{number}"
        x = g.tap(stage, block(g, x, scope / "blocks" / number, config, stage))
    return x


def block(g: Graph, x: Tensor, scope: Scope, config: AdaptorConfig, stage: str) -> Tensor:
    """Applies a pre-norm block, [T, H] to [T, H]: attention, then feed-forward; taps the stages inside the layer."""
    size, layer, prefix = config.llm_dim, scope / "self_attn", f"{stage}.attention"
    normed = g.tap(f"{stage}.input_norm", g.layer_norm(x, scope / "norm1", ADAPTOR_EPS))
    q, k, v = (g.linear(normed, layer / f"linear_{name}", size) for name in "qkv")
    context = attention(g, show_projected(g, q, k, v, config.attention_heads, prefix), prefix)
    x = g.add(x, g.tap(f"{prefix}.output", g.linear(context, layer / "linear_out", size)))
    x = g.tap(f"{prefix}.residual", x)
    normed = g.tap(f"{stage}.mlp_norm", g.layer_norm(x, scope / "norm2", ADAPTOR_EPS))
    return g.add(x, feed_forward(g, normed, scope / "feed_forward", size // 4, f"{stage}.mlp"))
