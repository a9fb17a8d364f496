"""Xcodec's decoder as a ggml graph: latents [T, width] to samples, with the tensor names of `speechlm_audio`.

It is the decoder of the Descript audio codec (Kumar et al., "High-Fidelity Audio Compression with Improved RVQGAN",
NeurIPS 2023) without the final tanh.
"""

from __future__ import annotations

import math

from workbench.families.speechlm.gguf import CodecSizes
from workbench.runtimes.gguf.graphs.convolutions import convolve, snake_convolve, snake_upsample
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.speech.receptive_field import Convolution, receptive_field

TAPS = 7  # of the convolutions that keep the rate
DILATIONS = (1, 3, 9)  # of a block's residual units
TILE = 1 << 20  # values that a convolution of the last block reads at once: 4 MiB
SAME = Convolution(TAPS, 1, TAPS // 2)


def decode(g: Graph, latents: Tensor, scope: Scope, sizes: CodecSizes) -> Tensor:
    """Decodes latents [T, width] to samples [T * hop, 1]."""
    x = convolve(g, latents, scope / "conv1", sizes.decoder_width, TAPS, padding=TAPS // 2)
    for number in range(len(sizes.upsampling) - 1):
        x = upsampling_block(g, x, scope, sizes, number)
    return last_block(g, x, scope, sizes)


def last_block(g: Graph, x: Tensor, scope: Scope, sizes: CodecSizes) -> Tensor:
    """Applies the last block and convolution [T, D] to [T * stride, 1], a few frames at a time.

    Most of the values occur here, so this limits the memory.
    """
    number, frames, joined = len(sizes.upsampling) - 1, x.shape[0], None
    stride, width = sizes.upsampling[-1], sizes.decoder_width >> (number + 1)
    step = max(TILE // (TAPS * width * stride), 1)
    before, after = receptive_field([*_block_layers(stride), SAME], stride)
    for first in range(0, frames, step):
        last, start = min(first + step, frames), max(first - before, 0)
        part = upsampling_block(g, g.rows(x, start, min(last + after, frames)), scope, sizes, number)
        part = snake_convolve(g, part, scope / "snake", scope / "conv2", 1, TAPS)
        part = g.rows(part, (first - start) * stride, (last - start) * stride)
        joined = g.concatenate(joined, part) if joined else part
    assert joined is not None
    return joined


def upsampling_block(g: Graph, x: Tensor, scope: Scope, sizes: CodecSizes, number: int) -> Tensor:
    """Applies a block of the decoder: [T, D] to [T * stride, D / 2]."""
    block, width = scope / "block" / number, sizes.decoder_width >> (number + 1)
    x = snake_upsample(g, x, block / "snake", block / "up", width, sizes.upsampling[number])
    return residual_units(g, x, block)


def residual_units(g: Graph, x: Tensor, block: Scope) -> Tensor:
    """Applies the three residual units of a block of encoder or decoder: [T, D] to [T, D]."""
    width = x.shape[1]
    for number, dilation in enumerate(DILATIONS):
        unit = block / "res" / number
        inner = snake_convolve(g, x, unit / "snake1", unit / "conv1", width, TAPS, dilation)
        x = g.add(x, snake_convolve(g, inner, unit / "snake2", unit / "conv2", width, 1))
    return x


def decoder_receptive_field(sizes: CodecSizes) -> tuple[int, int]:
    """Returns how many frames before and after a frame change its samples."""
    blocks = [layer for stride in sizes.upsampling for layer in _block_layers(stride)]
    return receptive_field([SAME, *blocks, SAME], math.prod(sizes.upsampling))


def values_of_frame(sizes: CodecSizes) -> int:
    """Returns how many values of a frame the widest convolution before the last block reads."""
    rate, widest = 1, sizes.acoustic_width
    for number, stride in enumerate(sizes.upsampling[:-1]):
        rate *= stride
        widest = max(widest, rate * (sizes.decoder_width >> (number + 1)))
    return TAPS * widest


def _block_layers(stride: int) -> list[Convolution]:
    up = Convolution(2 * stride, stride, (stride + 1) // 2, transposed=True)
    return [up, *(Convolution(TAPS, 1, TAPS // 2 * dilation, dilation) for dilation in DILATIONS)]
