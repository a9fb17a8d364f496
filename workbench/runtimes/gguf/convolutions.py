"""Convolutions over time and Snake, for graphs whose frames have their channels side by side [T, D].

Kernels are [out, taps, in], as the conversion writes them, so a convolution is one matrix product over neighbouring
frames. That is faster than ggml's own convolutions, which need the frames side by side.
"""

from __future__ import annotations

import numpy as np

from workbench.runtimes.gguf.graph import Graph
from workbench.runtimes.gguf.weights import Scope, Tensor

LANES = 16  # ggml multiplies fast if the summed dimension is a multiple of this
SNAKE_EPS = 1e-9  # of the Descript audio codec
SNAKE_VALUES = 1 << 14  # values that Snake computes at a time: they fit into the processor's cache


def convolve(
    g: Graph,
    x: Tensor,
    scope: Scope,
    out: int,
    taps: int,
    padding: int = 0,
    stride: int = 1,
    dilation: int = 1,
    bias: bool = True,
) -> Tensor:
    """Applies a convolution with zero padding on both sides: x [T, in] to [T', out]."""
    width, shape = x.shape[1], (out, taps, x.shape[1])
    more = extra_taps(taps, width, dilation)
    if padding or more:
        x = g.pad_frames(x, padding, padding + more * dilation)
    if dilation > 1:
        x = g.neighbours(x, taps + more, stride, dilation)
        kernel = scope.arranged("weight", shape, with_taps) if more else scope.array("weight", shape)
    else:
        x = g.neighbours(x, taps, stride, lanes=rounded(taps * width))
        kernel = scope.arranged("weight", shape, with_lanes) if more else scope.array("weight", shape)
    kernel = g.reshape(kernel, (out, x.shape[1]))
    if out == 1:  # ggml multiplies a matrix and a vector fast in this order only
        return g.add(g.reshape(g.matmul(x, kernel), (x.shape[0], 1)), scope.vector("bias", 1))
    y = g.matmul(kernel, x)
    return g.add(y, scope.vector("bias", out)) if bias else y


def upsample(g: Graph, x: Tensor, scope: Scope, out: int, stride: int) -> Tensor:
    """Applies the transposed convolution of kernel 2 * stride of a Descript audio codec: x [T, in] to [stride * T,
    out].

    Each output sample depends on two neighbouring frames, so the kernel [stride, out, 2, in] gives `stride` samples for
    each pair of frames. The padding is half the stride, rounded up.
    """
    frames, width = x.shape
    pairs = g.neighbours(g.pad_frames(x, 1, 1), 2)
    kernel = scope.array("weight", (stride, out, 2, width))
    y = g.matmul(g.reshape(kernel, (stride * out, 2 * width)), pairs)
    first = (stride + 1) // 2
    y = g.rows(g.reshape(y, ((frames + 1) * stride, out)), first, first + stride * frames)
    return g.add(y, scope.vector("bias", out))


def snake(g: Graph, x: Tensor, scope: Scope) -> Tensor:
    """Applies Snake, x + sin(a x)^2 / a with a frequency for each channel (Ziyin et al., "Neural networks fail to learn
    periodic functions and how to fix it", NeurIPS 2020).

    numpy computes the sines, ten times as fast as ggml.
    """
    width = x.shape[1]
    step = max(SNAKE_VALUES // width, 1)
    alpha = np.tile(scope.values("alpha", (width,)), step)
    inverse = 1 / (alpha + np.float32(SNAKE_EPS))

    def compute(rows: np.ndarray, result: np.ndarray) -> None:
        flat, places = rows.reshape(-1), result.reshape(-1)
        for first in range(0, len(flat), len(alpha)):
            part, place = flat[first : first + len(alpha)], places[first : first + len(alpha)]
            np.multiply(part, alpha[: len(part)], out=place)
            np.sin(place, out=place)
            np.multiply(place, place, out=place)
            np.multiply(place, inverse[: len(part)], out=place)
            np.add(place, part, out=place)

    return g.map_rows(x, compute)


def rounded(count: int) -> int:
    """Returns the number of values to sum over, so that ggml multiplies fast."""
    return -(-count // LANES) * LANES


def extra_taps(taps: int, width: int, dilation: int = 1) -> int:
    """Returns how many more frames a convolution must see so that it sums over `rounded` values.

    Neighbouring frames follow one another in memory, so a row can take a few more values from the next frames. With a
    dilation, it takes more taps, if a few are enough. The kernel has zeros for all of them.
    """
    if dilation == 1:
        return -(-(rounded(taps * width) - taps * width) // width)
    return next((more for more in range(taps) if (taps + more) * width % LANES == 0), 0)


def with_taps(kernel: np.ndarray) -> np.ndarray:
    """Returns a kernel [out, taps, in] with the taps of zeros that a dilated convolution needs."""
    _, taps, width = kernel.shape
    return np.pad(kernel, ((0, 0), (0, extra_taps(taps, width, dilation=2)), (0, 0)))


def with_lanes(kernel: np.ndarray) -> np.ndarray:
    """Returns a kernel [out, taps, in] as rows [out, rounded(taps * in)], filled up with zeros."""
    rows = kernel.reshape(len(kernel), -1)
    return np.pad(rows, ((0, 0), (0, rounded(rows.shape[1]) - rows.shape[1])))
