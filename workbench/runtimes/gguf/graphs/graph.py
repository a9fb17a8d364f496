"""Graphs of ggml in which a network reads like its paper: linear, layer norm, FSMN memory, attention, convolution.

A `Graph` is one computation. It is built for the current length, computed once and dropped (see
`workbench.runtimes.gguf.graphs.graph_runner`). Shapes are in numpy's order, slowest dimension first (see
`workbench.runtimes.gguf.graphs.shapes`).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np

from workbench.core.errors import Unavailable
from workbench.core.finite import not_finite_error
from workbench.runtimes.gguf.graphs import long_attention, matrix_products
from workbench.runtimes.gguf.graphs.capture import TensorCapture
from workbench.runtimes.gguf.graphs.ggml import F32, SUCCESS
from workbench.runtimes.gguf.graphs.lanes import Lane
from workbench.runtimes.gguf.graphs.numpy_nodes import NumpyNodes, array_of
from workbench.runtimes.gguf.graphs.shapes import Shapes
from workbench.runtimes.gguf.graphs.taps import Block, Place, Taps
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor, Weights
from workbench.trace.recorder import Recorder


class Graph(Shapes):
    """One computation; made by `GraphRunner.run`."""

    def __init__(self, lane: Lane, weights: Weights, nodes: int, recorder: Recorder | None):
        super().__init__(lane.library, nodes)
        self._lane = lane
        self._weights = weights
        self.taps = Taps(recorder)
        self._inputs: list[tuple[Tensor, np.ndarray]] = []
        self._sums: dict[str, Tensor] = {}  # of values that must be finite, by their stage
        self._numpy = NumpyNodes(self._library, self._context, self._lane.threads)
        # Frames of the shortest of several chunks that this graph computes at once. Linear layers take the arithmetic
        # that they take for this chunk alone.
        self.shortest_chunk: int | None = None

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._numpy.clear()

    @property
    def scope(self) -> Scope:
        """The weights, by their names in the file."""
        return Scope(self._weights)

    # Inputs, taps and outputs.

    def input(self, values: np.ndarray) -> Tensor:
        """Adds an array to the graph as a float32 tensor."""
        array = np.ascontiguousarray(values, dtype=np.float32)
        sizes = (ctypes.c_int64 * array.ndim)(*reversed(array.shape))
        tensor = self._tensor(self._library.new_tensor(self._context, F32, array.ndim, sizes), array.shape)
        self._library.set_input(tensor.pointer)
        self._inputs.append((tensor, array))
        return tensor

    def tap(self, stage: str, x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        """Names a point of the network; if its stage is wanted, the value there is recorded.

        Args:
            shape: of the stage, if it shows the same values in another shape.

        Returns the tensor to continue with: x, or an input with the recorder's substituted value.
        """
        if self.taps.wanted(stage):
            self.taps.blocks.append(Block(stage, x, shape or x.shape))
        substitute = self.taps.given(stage, shape or x.shape)
        if substitute is None:
            return x
        return self.input(substitute.reshape(x.shape) if shape else substitute)

    def show(self, stage: str, x: Tensor, shape: tuple[int, ...], place: Place | None = None) -> None:
        """Records x, which is computed for this alone, as a wanted stage or as a block of one.

        Args:
            shape: of the whole stage.
            place: of x in the stage; x may be longer, its first values are recorded. None if x is the whole stage.
        """
        first = self._tensor(self._library.view_2d(self._context, x.pointer, 1, 1, 4, 0), (1, 1))
        self.taps.blocks.append(Block(stage, x, shape, place, consumer=self.scale(first, 1.0)))

    def expect_finite(self, stage: str, x: Tensor) -> None:
        """Makes `compute` raise `NotFinite` if x holds a value that is not finite, unless stages are recorded.

        ggml's ReLU makes zeros of NaN, so the logits of a network whose values overflow may be numbers again.
        """
        if not self.taps.is_recording:
            self._sums[stage] = self._tensor(self._library.sum(self._context, x.pointer), (1,))

    def compute(self, outputs: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        """Computes and returns the arrays of the outputs. Raises `NotFinite` as `expect_finite` says."""
        arrays = self._run_graph({**self._sums, **outputs})
        for stage in self._sums:
            if not np.isfinite(arrays.pop(stage)).all():
                raise not_finite_error(f"{stage} has values that are not finite")
        return arrays

    def _run_graph(self, outputs: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        library, backend = self._library, self._lane.backend
        graph = library.new_graph_custom(self._context, self._max_tensors, False)
        for tensor in outputs.values():
            library.set_output(tensor.pointer)
        for tensor in (*self.taps.tensors(), *outputs.values()):
            library.build_forward_expand(graph, tensor.pointer)
        if self.taps.blocks:
            inputs = {tensor.pointer: array for tensor, array in self._inputs}
            with TensorCapture(library, backend, 2 * self._max_tensors) as capture:
                self._fill_inputs(capture.allocate(graph))
                self._check_status(capture.compute(graph, *self.taps.watch(inputs, self._read)))
                return {name: self._read(tensor) for name, tensor in outputs.items()}
        # Planned anew each time, because ggml would reuse the last plan for any graph with the same number of nodes.
        allocator = self._lane.allocator
        self._fill_inputs(library.gallocr_reserve(allocator, graph) and library.gallocr_alloc_graph(allocator, graph))
        self._check_status(library.backend_graph_compute(backend, graph))
        return {name: self._read(tensor) for name, tensor in outputs.items()}

    def _fill_inputs(self, allocated: bool) -> None:
        """Fills the inputs when every tensor has its place."""
        if not allocated:
            raise Unavailable("there is not enough memory to compute a segment of this length; use shorter ones")
        for tensor, array in self._inputs:
            if self._library.get_data(tensor.pointer):  # a tensor that no operation reads has no place
                self._library.backend_tensor_set(tensor.pointer, array.ctypes.data, 0, array.nbytes)

    def _check_status(self, status: int) -> None:
        self._numpy.check()
        if status != SUCCESS:
            raise Unavailable(f"ggml could not compute the network: status {status}")

    def _read(self, tensor: Tensor) -> np.ndarray:
        array = np.empty(tensor.shape, dtype=np.float32)
        self._library.backend_tensor_get(tensor.pointer, array.ctypes.data, 0, array.nbytes)
        return array

    # Arithmetic.

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns x + y; a smaller y is repeated over x's slower dimensions."""
        return self._tensor(self._library.add(self._context, x.pointer, y.pointer), x.shape)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the elementwise product x * y; y is repeated as in `add`."""
        return self._tensor(self._library.mul(self._context, x.pointer, y.pointer), x.shape)

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """Returns x * factor."""
        return self._tensor(self._library.scale(self._context, x.pointer, factor), x.shape)

    def relu(self, x: Tensor) -> Tensor:
        """Returns max(x, 0)."""
        return self._tensor(self._library.relu(self._context, x.pointer), x.shape)

    def silu(self, x: Tensor) -> Tensor:
        """Returns x * sigmoid(x), also called swish."""
        return self._tensor(self._library.silu(self._context, x.pointer), x.shape)

    def sigmoid(self, x: Tensor) -> Tensor:
        """Returns 1 / (1 + exp(-x))."""
        return self._tensor(self._library.sigmoid(self._context, x.pointer), x.shape)

    def gelu(self, x: Tensor) -> Tensor:
        """Returns x times the normal distribution up to x, with the error function."""
        return self._tensor(self._library.gelu_erf(self._context, x.pointer), x.shape)

    def elu(self, x: Tensor) -> Tensor:
        """Returns x above zero, and exp(x) - 1 below."""
        return self._tensor(self._library.elu(self._context, x.pointer), x.shape)

    def map_rows(
        self, x: Tensor, compute: Callable[[np.ndarray, np.ndarray], None], before: int = 0, after: int = 0
    ) -> Tensor:
        """Returns numpy's result for x [T, D], for functions that ggml lacks or computes slowly.

        Args:
            compute: takes rows of x and the place for as many rows of the result; threads call it at the same time.
            before: rows of zeros in front of the result.
            after: rows of zeros behind it.
        """
        frames, width = x.shape
        total = before + frames + after

        def share(result: np.ndarray, number: int, threads: int) -> None:
            first, last = frames * number // threads, frames * (number + 1) // threads
            if number == 0:
                result[:before] = 0
                result[total - after :] = 0
            if first < last:
                compute(array_of(x)[first:last], result[before + first : before + last])

        return self._tensor(self._numpy.add((x,), (total, width), share), (total, width))

    def softmax(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        """Returns the softmax of scale * x [..., T, S] + mask [at least T, S] over the last dimension."""
        pointer = mask.pointer if mask else None
        return self._tensor(self._library.soft_max_ext(self._context, x.pointer, pointer, scale, 0.0), x.shape)

    def matmul(self, weight: Tensor, x: Tensor) -> Tensor:
        """Returns x [..., in] times the transpose of weight [..., out, in]: [..., out]."""
        pointer = self._library.mul_mat(self._context, weight.pointer, x.pointer)
        return self._tensor(pointer, (*x.shape[:-1], weight.shape[-2]))

    # Layers.

    def linear(self, x: Tensor, scope: Scope, out: int, bias: bool = True, rows: slice | None = None) -> Tensor:
        """Applies a linear layer, [T, in] to [T, out]; `rows` selects some of its outputs."""
        kind, frames = scope.kind("weight", (out, x.shape[-1])), self.shortest_chunk or x.shape[0]
        if len(x.shape) == 2 and matrix_products.takes(kind, frames) and self.is_contiguous(x):
            weight = scope.stored("weight", (out, x.shape[1]), rows)
            if weight is not None:
                bias_values = scope.values("bias", (out,))[rows or slice(None)] if bias else None
                shape = x.shape[0], len(weight.rows)
                share = matrix_products.linear(self._library, x, weight, bias_values)
                return self._tensor(self._numpy.add((x,), shape, share), shape)
        y = self.matmul(scope.matrix("weight", (out, x.shape[-1]), rows), x)
        return self.add(y, scope.vector("bias", out, rows)) if bias else y

    def layer_norm(self, x: Tensor, scope: Scope, eps: float) -> Tensor:
        """Applies layer normalisation over the last dimension, with gain and bias."""
        width = x.shape[-1]
        normed = self.normalise(x, eps)
        return self.add(self.mul(normed, scope.vector("weight", width)), scope.vector("bias", width))

    def normalise(self, x: Tensor, eps: float) -> Tensor:
        """Returns x with mean 0 and variance 1 over the last dimension."""
        return self._tensor(self._library.norm(self._context, x.pointer, eps), x.shape)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
        """Returns scaled dot-product attention of q [T, D] over k, v [S, D], split into heads: [T, D]."""
        frames, width = q.shape
        if min(frames, k.shape[0]) >= long_attention.MIN_FRAMES:
            return self._long_attention((q, k, v), lambda: tuple(map(array_of, (q, k, v))), heads)
        parts = [self.split(x, heads) for x in (q, k, v)]
        context = self._library.flash_attn_ext(
            self._context, *(part.pointer for part in parts), None, 1.0 / math.sqrt(width // heads), 0.0, 0.0
        )
        return self.reshape(self._tensor(context, (1, frames, heads, width // heads)), (frames, width))

    def self_attention(self, fused: Tensor, heads: int) -> Tensor:
        """Returns `attention` of q, k and v, which are the columns of fused [T, 3 * D]: [T, D]. They are not copied."""
        frames, width = fused.shape[0], fused.shape[1] // 3
        if frames >= long_attention.MIN_FRAMES:
            return self._long_attention((fused,), lambda: np.hsplit(array_of(fused), 3), heads)
        each, row, library = width // heads, 4 * fused.shape[1], self._library
        parts = [
            library.view_3d(self._context, fused.pointer, each, frames, heads, row, 4 * each, 4 * width * n)
            for n in range(3)
        ]
        context = library.flash_attn_ext(self._context, *parts, None, 1.0 / math.sqrt(each), 0.0, 0.0)
        return self.reshape(self._tensor(context, (1, frames, heads, each)), (frames, width))

    def long_relative_attention(
        self, content: Tensor, place: Tensor, k: Tensor, v: Tensor, positions: Tensor, heads: int, valid: int
    ) -> Tensor:
        """Returns attention with relative positions (see `long_attention.attend_relatively`) of queries [T, D] over the
        first `valid` keys: [T, D].
        """
        inputs, (frames, width) = (content, place, k, v, positions), content.shape
        tasks = long_attention.tasks(frames, heads, long_attention.RELATIVE_QUERIES)

        def share(result: np.ndarray, number: int, threads: int) -> None:
            q, q_place, keys, values, table = map(array_of, inputs)
            score_buffer = long_attention.score_buffer(frames, valid)
            for head, rows in tasks[number::threads]:
                long_attention.attend_relatively(
                    q, q_place, keys[:valid], values[:valid], table, result, heads, head, rows, score_buffer
                )

        return self._tensor(self._numpy.add(inputs, (frames, width), share), (frames, width))

    def _long_attention(
        self, inputs: Sequence[Tensor], arrays: Callable[[], Sequence[np.ndarray]], heads: int
    ) -> Tensor:
        """Returns attention [T, D] computed by numpy; `arrays` returns q, k and v when the tensors have values."""
        frames, width = inputs[0].shape[0], inputs[0].shape[1] * len(inputs) // 3
        tasks = long_attention.tasks(frames, heads)

        def share(result: np.ndarray, number: int, threads: int) -> None:
            q, k, v = arrays()
            score_buffer = long_attention.score_buffer(frames, len(k))
            for head, rows in tasks[number::threads]:
                long_attention.attend(q, k, v, result, heads, head, rows, score_buffer)

        return self._tensor(self._numpy.add(inputs, (frames, width), share), (frames, width))

    def depthwise(self, x: Tensor, kernel: Tensor, left: int, right: int) -> Tensor:
        """Applies a depthwise convolution over time with zero padding `left` and `right`: x [T, D], kernel [K, D] gives
        [T', D].

        It is computed as an image of width one with the channels innermost, which matches the layout of both in memory:
        one pass, no copy.
        """
        (frames, width), size = x.shape, kernel.shape[0]
        out = left + frames + right - size + 1
        if width < 3:
            return self._depthwise_by_taps(self.pad_frames(x, left, right), kernel, out)
        if left != right or frames == 1:  # the operation pads both sides alike, and mistakes the layout of a single row
            x, left = self.pad_frames(x, left, right + (frames == 1)), 0
            frames = x.shape[0]
        library, context, row = self._library, self._context, width * 4
        # Strides of dimensions of size one are never used; ggml recognises the layout by them.
        view = self._tensor(library.view_4d(context, x.pointer, width, 1, frames, 1, 8, row, row * frames, 0), ())
        image = self._tensor(library.permute(context, view.pointer, 2, 0, 1, 3), ())
        view = self._tensor(library.view_4d(context, kernel.pointer, width, 1, 1, size, row, row, row, 0), ())
        taps = self._tensor(library.permute(context, view.pointer, 3, 0, 2, 1), ())
        convolved = self._tensor(
            library.conv_2d_dw_direct(context, taps.pointer, image.pointer, 1, 1, 0, left, 1, 1), ()
        )
        output_frames = frames + 2 * left - size + 1
        column = self._tensor(library.permute(context, convolved.pointer, 1, 2, 0, 3), (1, output_frames, 1, width))
        return self.rows(self.reshape(column, (output_frames, width)), 0, out)

    def _depthwise_by_taps(self, x: Tensor, kernel: Tensor, out: int) -> Tensor:
        """Computes the same as a sum of shifted products, for widths whose layout the operation cannot recognise."""
        parts = [
            self.mul(self.rows(x, tap, tap + out), self.rows(kernel, tap, tap + 1)) for tap in range(kernel.shape[0])
        ]
        return reduce(self.add, parts)

    def convolution(self, x: Tensor, kernel: Tensor, left: int, right: int) -> Tensor:
        """Applies a convolution over time with zero padding `left` and `right`: x [T, in], kernel [out, in, K] gives
        [T', out].
        """
        (out, width, size), library, context = kernel.shape, self._library, self._context
        if left != right:  # the operation pads both sides alike
            x, left = self.pad_frames(x, left, right), 0
        frames = x.shape[0] + 2 * left - size + 1
        transposed = self.contiguous(self._tensor(library.permute(context, x.pointer, 1, 0, 2, 3), (width, x.shape[0])))
        columns = library.im2col(context, kernel.pointer, transposed.pointer, 1, 0, left, 0, 1, 0, False, F32)
        return self.matmul(self.reshape(kernel, (out, width * size)), self._tensor(columns, (frames, width * size)))

    def fsmn(self, x: Tensor, kernel: Tensor, shift: int = 0) -> Tensor:
        """Applies the FSMN memory (Zhang et al., 2018): depthwise convolution of x [T, D] with kernel [K, D],
        plus x.
        """
        left = (kernel.shape[0] - 1) // 2 + shift
        return self.add(self.depthwise(x, kernel, left, kernel.shape[0] - 1 - left), x)

    def convolve_image(self, x: Tensor, scope: Scope, out: int, size: int, stride: int) -> Tensor:
        """Applies a convolution to x [channels, H, W] without padding: [out, (H - size) // stride + 1, likewise W]."""
        channels, *sides = x.shape
        kernel = scope.array("weight", (out, channels, size, size))
        image, steps = self.reshape(x, (1, *x.shape)), (stride, stride, 0, 0, 1, 1)
        pointer = self._library.conv_2d_direct(self._context, kernel.pointer, image.pointer, *steps)
        shape = (out, *((side - size) // stride + 1 for side in sides))
        return self.add(self._tensor(pointer, shape), self.reshape(scope.vector("bias", out), (out, 1, 1)))
