"""The part of HuBERT that Xcodec uses, as a ggml graph: the mean of all hidden states.

Tensors have the names of `workbench.conversion.speechlm_audio`.

Hsu et al., "HuBERT: Self-Supervised Speech Representation Learning by Masked Prediction of Hidden Units", TASLP 2021.
"""

from __future__ import annotations

from workbench.families.speechlm.gguf import SemanticSizes
from workbench.runtimes.gguf.graphs.convolutions import convolve
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor

CONVOLUTION_EPS = 1e-5  # of the norms between the convolutions


def hidden_mean(g: Graph, x: Tensor, scope: Scope, sizes: SemanticSizes, width: int) -> Tensor:
    """Returns the mean of the states before, between and after the layers [T', width] of samples [T, 1].

    Stable models have a norm after their last layer. As in transformers, it is no part of the mean.
    """
    for number, (out, taps, stride) in enumerate(zip(sizes.widths, sizes.kernels, sizes.strides, strict=True)):
        layer = scope / "conv" / number
        x = convolve(g, x, layer, out, taps, stride=stride, bias=sizes.biased)
        if sizes.norm == "layer":
            x = g.layer_norm(x, layer / "norm", CONVOLUTION_EPS)
        elif number == 0:
            x = normalise_over_time(g, x, layer / "norm")
        x = g.gelu(x)
    if sizes.projection_norm:
        x = g.layer_norm(x, scope / "projection_norm", sizes.epsilon)
    x = g.linear(x, scope / "projection", width)
    x = g.add(x, g.gelu(convolve_positions(g, x, scope / "position", sizes)))
    if not sizes.stable:
        x = g.layer_norm(x, scope / "norm", sizes.epsilon)
    total = x
    for number in range(sizes.layers):
        x = transformer_layer(g, x, scope / "layers" / number, sizes)
        total = g.add(total, x)
    return g.scale(total, 1 / (sizes.layers + 1))


def transformer_layer(g: Graph, x: Tensor, scope: Scope, sizes: SemanticSizes) -> Tensor:
    """Applies a transformer layer, [T, D] to [T, D]. Stable models normalise before each half, others after it."""

    def attend(y: Tensor) -> Tensor:
        fused = g.linear(y, scope / "attn_qkv", 3 * y.shape[1])
        return g.linear(g.self_attention(fused, sizes.heads), scope / "attn_out", y.shape[1])

    def feed_forward(y: Tensor) -> Tensor:
        return g.linear(g.gelu(g.linear(y, scope / "fc1", sizes.units)), scope / "fc2", y.shape[1])

    def first_norm(y: Tensor) -> Tensor:
        return g.layer_norm(y, scope / "attn_norm", sizes.epsilon)

    def second_norm(y: Tensor) -> Tensor:
        return g.layer_norm(y, scope / "ffn_norm", sizes.epsilon)

    if sizes.stable:
        x = g.add(x, attend(first_norm(x)))
        return g.add(x, feed_forward(second_norm(x)))
    x = first_norm(g.add(x, attend(x)))
    return second_norm(g.add(x, feed_forward(x)))


def normalise_over_time(g: Graph, x: Tensor, scope: Scope) -> Tensor:
    """Normalises each channel of x [T, D] over its frames, with gain and bias of the channel."""
    frames, width = x.shape
    transposed = g.reshape(g.transpose(g.reshape(x, (1, frames, width))), (width, frames))
    normed = g.normalise(transposed, CONVOLUTION_EPS)
    x = g.reshape(g.transpose(g.reshape(normed, (1, width, frames))), (frames, width))
    return g.add(g.mul(x, scope.vector("weight", width)), scope.vector("bias", width))


def convolve_positions(g: Graph, x: Tensor, scope: Scope, sizes: SemanticSizes) -> Tensor:
    """Applies the position convolution, whose channels are in groups: [T, D] to [T, D]."""
    (frames, width), taps, groups = x.shape, sizes.position_kernel, sizes.position_groups
    group_width, kernel = width // groups, scope.array("weight", (groups, width // groups, taps, width // groups))
    padded, outputs = g.pad_frames(x, taps // 2, taps // 2), None
    for group in range(groups):
        group_columns = g.columns(padded, group * group_width, (group + 1) * group_width)
        rows = g.unfold(group_columns, taps * group_width, frames, 1)
        weight = g.rows(g.reshape(kernel, (width, taps * group_width)), group * group_width, (group + 1) * group_width)
        convolved = g.matmul(weight, rows)
        outputs = g.concatenate_channels(outputs, convolved) if outputs else convolved
    assert outputs is not None
    return g.add(outputs, scope.vector("bias", width))
