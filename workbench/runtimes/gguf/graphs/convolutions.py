"""Convolutions over time and Snake, for graphs whose frames have their channels side by side [T, D].

Kernels are [out, taps, in], as the conversion writes them, so a convolution is one matrix product over neighbouring
frames. That is faster than ggml's own convolutions, which need the frames side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.core.errors import BadInput
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor

FULL = 64  # ggml multiplies a matrix of fewer rows slowly
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
    kernel = Kernel(out, taps, x.shape[1], stride, dilation)
    frames = (x.shape[0] + 2 * padding - (taps - 1) * dilation - 1) // stride + 1
    if frames < 1:
        raise BadInput(f"a convolution over {taps} frames got {x.shape[0]}; expected a longer input")
    after = max(kernel.input_frames(frames) - padding - x.shape[0], 0)
    if padding or after:
        x = g.pad_frames(x, padding, after)
    y = product(g, x, scope, kernel, frames)
    return g.add(y, scope.vector("bias", out)) if bias else y


def snake_convolve(
    g: Graph, x: Tensor, activation: Scope, scope: Scope, out: int, taps: int, dilation: int = 1
) -> Tensor:
    """Applies Snake, and then a convolution that keeps the number of frames: x [T, in] to [T, out].

    Snake also writes the zero padding: ggml's own operation for that takes a third of a convolution's time.
    """
    kernel, padding = Kernel(out, taps, x.shape[1], 1, dilation), taps // 2 * dilation
    x, frames = snake(g, x, activation, padding, kernel.input_frames(x.shape[0]) - padding - x.shape[0]), x.shape[0]
    return g.add(product(g, x, scope, kernel, frames), scope.vector("bias", out))


def product(g: Graph, x: Tensor, scope: Scope, kernel: Kernel, frames: int) -> Tensor:
    """Returns frames of a convolution without bias [frames, out]; x [T, in] has all frames that it reads."""
    shape = kernel.out, kernel.taps, kernel.width
    weight = scope.array("weight", shape) if kernel.is_plain else scope.arranged("weight", shape, kernel)
    weight = g.reshape(weight, (kernel.frames_per_product * kernel.out, kernel.lanes))
    count = kernel.rows(frames)
    x = g.unfold(x, kernel.lanes, count, kernel.step, kernel.dilation)
    # ggml multiplies a matrix and a vector fast in one order only.
    y = g.matmul(x, weight) if kernel.out == 1 else g.matmul(weight, x)
    # With a dilation, a product gives frames that lie apart; this puts them in order.
    if kernel.dilation > 1 and kernel.frames_per_product > 1:
        y = g.contiguous(g.swap(g.reshape(y, (count, kernel.dilation, kernel.frames_per_product, kernel.out))))
    return g.rows(g.reshape(y, (count * kernel.dilation * kernel.frames_per_product, kernel.out)), 0, frames)


@dataclass(frozen=True)
class Kernel:
    """The kernel [out, taps, in] of a convolution as a matrix: which frames its products read, and which they give.

    ggml multiplies a matrix of few rows slowly. So if a convolution has few output channels, each product gives several
    frames of the result, `dilation` frames apart. The product reads all input frames that these frames need; the other
    elements of the matrix are zero.
    """

    out: int
    taps: int
    width: int
    stride: int = 1  # 1 with a dilation
    dilation: int = 1

    @property
    def frames_per_product(self) -> int:
        """The number of frames that a product gives."""
        return -(-FULL // self.out) if self.stride == 1 and 1 < self.out < FULL else 1

    @property
    def lanes(self) -> int:
        """The number of values that a product reads: a multiple of `LANES`, which ggml sums fast.

        Frames follow one another in memory, so a product can read a few values of the next frames. With a dilation, it
        reads more taps, if a few are enough.
        """
        taps = self.taps + self.frames_per_product - 1
        if self.dilation == 1:
            return -(-taps * self.width // LANES) * LANES
        extra_taps = next(
            (extra_taps for extra_taps in range(taps) if (taps + extra_taps) * self.width % LANES == 0), 0
        )
        return (taps + extra_taps) * self.width

    @property
    def is_plain(self) -> bool:
        """Whether the matrix has the kernel's own values in their order."""
        return self.frames_per_product == 1 and self.lanes == self.taps * self.width

    @property
    def step(self) -> int:
        """The number of frames from the first frame of a product to that of the next one with the same remainder."""
        return self.frames_per_product * self.stride * self.dilation

    def rows(self, frames: int) -> int:
        """Returns the number of products that give `frames` frames, for each remainder of the dilation."""
        return -(-frames // (self.frames_per_product * self.dilation))

    def input_frames(self, frames: int) -> int:
        """Returns the number of input frames that `frames` frames of the result need."""
        last = (self.rows(frames) - 1) * self.step + self.dilation - 1
        return last + (-(-self.lanes // self.width) - 1) * self.dilation + 1

    def __call__(self, kernel: np.ndarray) -> np.ndarray:
        """Returns the matrix [frames_per_product * out, lanes] of a kernel [out, taps, in]."""
        tap_count = self.taps + self.frames_per_product - 1
        matrix = np.zeros((self.frames_per_product, self.out, tap_count, self.width), dtype=np.float32)
        for number in range(self.frames_per_product):
            matrix[number, :, number : number + self.taps] = kernel
        flat = matrix.reshape(self.frames_per_product * self.out, tap_count * self.width)
        return np.pad(flat, ((0, 0), (0, self.lanes - flat.shape[1])))


def snake_upsample(g: Graph, x: Tensor, activation: Scope, scope: Scope, out: int, stride: int) -> Tensor:
    """Applies Snake, and then the transposed convolution of kernel 2 * stride of a Descript audio codec: x [T, in] to
    [stride * T, out].

    Each output sample depends on two neighbouring frames, so the kernel [stride, out, 2, in] gives `stride` samples for
    each pair of frames. The padding is half the stride, rounded up.
    """
    frames, width = x.shape
    pairs = g.unfold(snake(g, x, activation, 1, 1), 2 * width, frames + 1, 1)
    kernel = scope.array("weight", (stride, out, 2, width))
    y = g.matmul(g.reshape(kernel, (stride * out, 2 * width)), pairs)
    first = (stride + 1) // 2
    y = g.rows(g.reshape(y, ((frames + 1) * stride, out)), first, first + stride * frames)
    return g.add(y, scope.vector("bias", out))


def snake(g: Graph, x: Tensor, scope: Scope, before: int = 0, after: int = 0) -> Tensor:
    """Applies Snake, x + sin(a x)^2 / a with a frequency for each channel (Ziyin et al., "Neural networks fail to learn
    periodic functions and how to fix it", NeurIPS 2020); with frames of zeros before and after it.

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

    return g.map_rows(x, compute, before, after)
