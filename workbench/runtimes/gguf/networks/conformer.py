"""FireRedASR's Conformer encoder and adapter as ggml graphs, with the tensor names of the published checkpoints.

Gulati et al., "Conformer: Convolution-augmented Transformer for Speech Recognition", Interspeech 2020, with the
relative positions of Dai et al., "Transformer-XL", ACL 2019. Axes: T frames, D width; one recording at a time. Reading
order: input, subsampling, block, feed-forward, attention, convolution, adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.families.speech_llm.conformer import CONTEXT_FRAMES, ConformerConfig, encoder_frames
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.trace.inside import check_weights

CHANNELS = 32  # channels of the subsampling convolutions
KERNEL, STRIDE = 3, 2
EPS = 1e-5  # epsilon of all layer norms
QUERIES = 128  # frames whose attention is computed at once
MIN_LONG = 192  # frames; with fewer, ggml is as fast as numpy
CONVOLUTION_STAGES = ("norm", "up", "gate", "depthwise", "depthwise_norm", "activation")
LANES = 16  # ggml multiplies fast if the summed dimension is a multiple of this


@dataclass(frozen=True)
class EncoderInput:
    """The inputs of the graph: the features, and the values that depend on their length."""

    features: np.ndarray  # [L + 6, mels]
    positions: np.ndarray  # [at least 2T - 1, D]
    mask: np.ndarray  # [queries, keys]: added to scores; -inf at frames without speech
    valid: int  # encoder frames that are speech

    @property
    def frames(self) -> int:
        """The number of encoder frames T."""
        return encoder_frames(len(self.features) - (CONTEXT_FRAMES - 1))


def encoder_input(features: np.ndarray, valid: int, config: ConformerConfig) -> EncoderInput:
    """Returns the inputs for features [L, mels], of which the first `valid` encoder frames are speech; pads the last
    context with zeros.
    """
    frames = encoder_frames(len(features))
    keys, queries = _round_up(frames), min(frames, QUERIES)
    mask = np.zeros((queries, keys), dtype=np.float32)
    mask[:, valid:] = -np.inf
    padded = np.pad(features, ((0, CONTEXT_FRAMES - 1), (0, 0)))
    # The first block of queries needs the last rows of the positions, so it decides their number.
    count = frames - queries + _round_up(keys + queries - 1)
    return EncoderInput(padded, relative_positions(frames, count, config.d_model), mask, valid)


def relative_positions(frames: int, count: int, size: int) -> np.ndarray:
    """Returns sinusoids [count, D] of the distances T - 1, T - 2, ...: sines in even channels, cosines in odd ones."""
    distances = np.arange(frames - 1, frames - 1 - count, -1, dtype=np.float32)
    rates = np.exp(np.arange(0, size, 2, dtype=np.float32) * np.float32(-np.log(10000.0) / size))
    angles = distances[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(count, size)


def encode(g: Graph, sound: EncoderInput, scope: Scope, config: ConformerConfig) -> Tensor:
    """Encodes the inputs to [T, D]; taps the stages `encoder.*`."""
    x = g.tap("encoder.input", subsample(g, g.input(sound.features), scope / "input_preprocessor", config.d_model))
    positions, mask = g.input(sound.positions), g.input(sound.mask)
    for number in range(config.n_layers):
        stage, layer = f"encoder.layers.{number}", scope / "layer_stack" / number
        x = feed_forward(g, x, layer / "ffn1", f"{stage}.ffn1")
        x = g.add(x, attention(g, x, positions, mask, sound.valid, layer / "mhsa", config, stage))
        x = g.tap(f"{stage}.attention.residual", x)
        x = g.add(x, convolution(g, x, sound.valid, layer / "conv", config, stage))
        x = g.tap(f"{stage}.conv.residual", x)
        x = feed_forward(g, x, layer / "ffn2", f"{stage}.ffn2")
        x = g.tap(stage, g.layer_norm(x, layer / "layer_norm", EPS))
    g.expect_finite("encoder.output", x)
    return g.tap("encoder.output", x)


def subsample(g: Graph, features: Tensor, scope: Scope, size: int) -> Tensor:
    """Applies two strided convolutions over time and frequency, then a linear layer: [L + 6, mels] to [ceil(L /
    4), D].
    """
    x = g.reshape(features, (1, *features.shape))
    for number in (0, 2):
        x = g.relu(g.convolve_image(x, scope / "conv" / number, CHANNELS, KERNEL, STRIDE))
    channels, frames, bands = x.shape
    return g.linear(g.reshape(g.contiguous(g.swap(x)), (frames, channels * bands)), scope / "out", size)


def feed_forward(g: Graph, x: Tensor, scope: Scope, prefix: str) -> Tensor:
    """Returns x plus half of: layer norm, two linear layers with a swish between; taps the stages `prefix.*`."""
    size = x.shape[-1]
    net = scope / "net"
    normed = g.tap(f"{prefix}.norm", g.layer_norm(x, net / 0, EPS))
    inner = g.tap(f"{prefix}.activation", g.silu(g.tap(f"{prefix}.up", g.linear(normed, net / 1, 4 * size))))
    inner = g.tap(f"{prefix}.down", g.linear(inner, net / 4, size))
    return g.tap(f"{prefix}.residual", g.add(x, g.scale(inner, 0.5)))


def attention(
    g: Graph, x: Tensor, positions: Tensor, mask: Tensor, valid: int, scope: Scope, config: ConformerConfig, stage: str
) -> Tensor:
    """Applies multi-head self-attention with relative positions: [T, D] to [T, D].

    The first `valid` keys are speech.
    """
    (frames, size), heads, prefix = x.shape, config.n_head, f"{stage}.attention"
    width = size // heads
    q, k, v = (
        _project(g, g.layer_norm(x, scope / f"layer_norm_{name[0]}", EPS), scope, heads, stage, name)
        for name in ("query", "key", "value")
    )
    p = g.linear(positions, scope / "linear_pos", size, bias=False)
    biases = [scope.array(f"pos_bias_{name}", (heads, width)) for name in "uv"]
    if frames >= MIN_LONG and not g.taps.wanted(f"{prefix}.weights"):
        by_content, by_place = (g.add(q, g.reshape(bias, (1, size))) for bias in biases)
        context = g.long_relative_attention(by_content, by_place, k, v, p, heads, valid)
    else:
        context = _attention_by_blocks(g, q, k, v, p, biases, mask, f"{prefix}.weights")
    context = g.tap(f"{prefix}.context", context)
    return g.tap(prefix, g.tap(f"{prefix}.output", g.linear(context, scope / "fc", size, bias=False)))


def _attention_by_blocks(
    g: Graph, q: Tensor, k: Tensor, v: Tensor, p: Tensor, biases: Sequence[Tensor], mask: Tensor, stage: str
) -> Tensor:
    """Returns attention with relative positions of `QUERIES` queries at a time; shows the stage of its weights.

    In the scores by distance of a block of queries, the first column is the distance from the block's last query back
    to the first key. The row of scores by key of each earlier query begins one column further, so it is a view (the
    shift of Dai et al. 2019, appendix B).

    Args:
        p: the projected positions.
        biases: [heads, head width] of the queries that meet keys, and of those that meet positions.
    """
    frames, keys, (heads, width) = q.shape[0], mask.shape[1], biases[0].shape
    k, v = (g.pad_frames(y, 0, keys - frames) if keys > frames else y for y in (k, v))
    by_head, values = g.split(k, heads), g.transpose(g.split(v, heads))
    shape, context, show_weights = (heads, frames, frames), None, g.taps.wanted(stage)
    if show_weights:
        check_weights(stage, *shape)
    for first in range(0, frames, QUERIES):
        last = min(first + QUERIES, frames)
        block = g.split(g.rows(q, first, last), heads)
        by_content, by_place = (g.add(block, g.reshape(bias, (heads, 1, width))) for bias in biases)
        distances = g.rows(p, frames - last, frames - last + _round_up(keys + last - first - 1))
        position_scores = g.slide(g.matmul(g.split(distances, heads), by_place), keys)
        scores = g.add(g.matmul(by_head, by_content), position_scores)
        weights = g.softmax(scores, mask, width**-0.5)
        if show_weights:
            g.show(stage, weights, shape, (slice(None), slice(first, last), slice(None)))
        part = g.join(g.matmul(values, weights))
        context = g.concatenate(context, part) if context else part
    assert context is not None
    return context


def _project(g: Graph, normed: Tensor, scope: Scope, heads: int, stage: str, name: str) -> Tensor:
    """Returns queries, keys or values [T, D] of their own normed input; taps both."""
    frames, size = normed.shape
    normed = g.tap(f"{stage}.input_norm.{name}", normed)
    projected = g.linear(normed, scope / f"w_{name[0]}s", size, bias=False)
    return g.tap(f"{stage}.attention.{name}", projected, (frames, heads, size // heads))


def convolution(g: Graph, x: Tensor, valid: int, scope: Scope, config: ConformerConfig, stage: str) -> Tensor:
    """Applies pointwise, gate, depthwise over time, layer norm (called batch_norm in the files), swish, pointwise.

    Maps [T, D] to [T, D]. Frames after the first `valid` are read as zeros, and their output is zero. Taps the stages
    `conv.*` inside the layer, which have all frames, and `convolution`.
    """
    (frames, size), prefix = x.shape, f"{stage}.conv"
    all_frames = valid == frames or any(g.taps.needs(f"{prefix}.{name}") for name in CONVOLUTION_STAGES)
    inner = g.layer_norm(x if all_frames else g.rows(x, 0, valid), scope / "pre_layer_norm", EPS)
    inner = g.tap(f"{prefix}.norm", inner)
    if all_frames and valid < frames:
        inner = g.pad_frames(g.rows(inner, 0, valid), 0, frames - valid)
    kernel, reach = config.kernel_size, config.kernel_size // 2
    taps = (scope / "depthwise_conv").array("weight", (kernel, 2 * size))
    gated = g.tap(f"{prefix}.gate", _gate(g, inner, scope / "pointwise_conv1", f"{prefix}.up"))
    inner = g.tap(f"{prefix}.depthwise", g.depthwise(gated, taps, reach, reach))
    inner = g.tap(f"{prefix}.depthwise_norm", g.layer_norm(inner, scope / "batch_norm", EPS))
    inner = g.tap(f"{prefix}.activation", g.silu(inner))
    inner = g.linear(inner, scope / "pointwise_conv2", size, bias=False)
    if all_frames and valid < frames:
        inner = g.rows(inner, 0, valid)
    return g.tap(f"{stage}.convolution", g.pad_frames(inner, 0, frames - valid) if valid < frames else inner)


def _gate(g: Graph, x: Tensor, scope: Scope, stage: str) -> Tensor:
    """Applies the pointwise convolution from D to 4 D and the gate: [T, D] to [T, 2 D]; shows the stage between them.

    Each half of the gated layer is computed separately, so that no copy is needed to split them.
    """
    frames, size = x.shape
    column_halves = slice(0, 2 * size), slice(2 * size, 4 * size)
    values, gates = (g.linear(x, scope, 4 * size, bias=False, rows=columns) for columns in column_halves)
    shape = (frames, 4 * size)
    if g.taps.wanted(stage):
        g.show(stage, g.concatenate_channels(values, gates), shape)
    substitute = g.taps.given(stage, shape)
    if substitute is not None:
        values, gates = (g.input(substitute[:, columns]) for columns in column_halves)
    return g.mul(values, g.sigmoid(gates))


def adapt(g: Graph, encoded: Tensor, scope: Scope, width: int, downsample_rate: int) -> Tensor:
    """Applies the adapter: stacks neighbouring encoder frames [T, D] and maps them to [T // rate, width]; taps
    `adaptor.output`.

    Frames at the end that do not fill a stack are dropped.
    """
    frames, size = encoded.shape
    stacks = frames // downsample_rate
    x = g.reshape(g.rows(encoded, 0, stacks * downsample_rate), (stacks, downsample_rate * size))
    x = g.relu(g.linear(x, scope / "linear1", width))
    return g.tap("adaptor.output", g.linear(x, scope / "linear2", width))


def _round_up(count: int) -> int:
    return -(-count // LANES) * LANES
