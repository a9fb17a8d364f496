"""Views and copies of a graph's tensors in other shapes: rows, columns, windows, patches, padding.

Shapes are in numpy's order, slowest dimension first; ggml's own order is the reverse. This file knows no weights and
computes no numbers.
"""

from __future__ import annotations

from typing import Self

from workbench.runtimes.gguf.graphs.ggml import InitParams, Library, TensorStruct
from workbench.runtimes.gguf.graphs.weights import Tensor


class GraphFull(Exception):
    """Raised if a graph needs more tensors than it has room for."""


class Shapes:
    """The tensors of one ggml context.

    Args:
        max_tensors: the most tensors that the context holds.
    """

    def __init__(self, library: Library, max_tensors: int):
        self._library, self._max_tensors, self._count = library, max_tensors, 0
        # Each tensor counts twice, as some operations create a second one.
        size = 2 * max_tensors * library.tensor_overhead() + library.graph_overhead_custom(max_tensors, False)
        self._context = library.init(InitParams(size, None, True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.free(self._context)

    def _tensor(self, pointer: int, shape: tuple[int, ...]) -> Tensor:
        self._count += 1
        if self._count >= self._max_tensors:
            raise GraphFull
        return Tensor(pointer, shape)

    def split(self, x: Tensor, heads: int) -> Tensor:
        """Returns [T, D] as [heads, T, D / heads], a view."""
        return self.swap(self.reshape(x, (x.shape[0], heads, x.shape[1] // heads)))

    def join(self, x: Tensor) -> Tensor:
        """Returns [heads, T, W] as [T, heads * W], copied."""
        heads, frames, width = x.shape
        return self.reshape(self.contiguous(self.swap(x)), (frames, heads * width))

    def swap(self, x: Tensor) -> Tensor:
        """Returns [..., A, B, C] as [..., B, A, C], a view; at most four dimensions."""
        *leading, a, b, c = x.shape
        return self._tensor(self._library.permute(self._context, x.pointer, 0, 2, 1, 3), (*leading, b, a, c))

    def transpose(self, x: Tensor) -> Tensor:
        """Returns [A, B, C] as [A, C, B], copied."""
        a, b, c = x.shape
        view = self._tensor(self._library.permute(self._context, x.pointer, 1, 0, 2, 3), (a, c, b))
        return self.contiguous(view)

    def rows(self, x: Tensor, first: int, last: int) -> Tensor:
        """Returns rows `first` to `last` (exclusive) of x [T, D], a view."""
        width = x.shape[1]
        view = self._library.view_2d(self._context, x.pointer, width, last - first, 4 * width, 4 * width * first)
        return self._tensor(view, (last - first, width))

    def columns(self, x: Tensor, first: int, last: int) -> Tensor:
        """Returns columns `first` to `last` (exclusive) of x [T, D], copied."""
        frames, width = x.shape
        view = self._library.view_2d(self._context, x.pointer, last - first, frames, 4 * width, 4 * first)
        return self.contiguous(self._tensor(view, (frames, last - first)))

    def unfold(self, x: Tensor, lanes: int, count: int, step: int, dilation: int = 1) -> Tensor:
        """Returns [count * dilation, lanes]: row n * dilation + r has the first `lanes` values of the rows r,
        r + dilation, r + 2 * dilation, ... of x [T, D], counted from row n * step on.

        Args:
            lanes: with a dilation, a multiple of D.
        """
        width, row = x.shape[1], 4 * x.shape[1]
        if dilation == 1 and lanes == step * width:
            return self.reshape(self.rows(x, 0, count * step), (count, lanes))
        if dilation == 1:
            return self.reshape(self._overlapping(x, (lanes, count, 1, 1), (4, step * row)), (count, lanes))
        sizes, steps = (width, lanes // width, dilation, count), (4, dilation * row, row, step * row)
        return self.reshape(self._overlapping(x, sizes, steps), (count * dilation, lanes))

    def patches(self, x: Tensor, size: int, stride: int) -> Tensor:
        """Returns [H', W', size * size * D] of an image [H, W, D], copied: the square at each place, row by row."""
        height, width, depth = x.shape
        patch_rows, patch_columns = ((side - size) // stride + 1 for side in (height, width))
        steps = 4, 4 * width * depth, 4 * stride * depth, 4 * stride * width * depth
        squares = self._overlapping(x, (size * depth, size, patch_columns, patch_rows), steps)
        return self.reshape(squares, (patch_rows, patch_columns, size * size * depth))

    def _overlapping(self, x: Tensor, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Tensor:
        """Returns a copy of a view in ggml's order, with steps in bytes.

        ggml refuses to make a view of more values than its tensor has, so the view gets its sizes afterwards.
        """
        view = self._library.view_2d(self._context, x.pointer, 1, 1, 4, 0)
        struct = TensorStruct.from_address(view)
        for axis, size in enumerate(sizes):
            struct.ne[axis] = size
            struct.nb[axis] = steps[axis] if axis < len(steps) else struct.nb[axis - 1] * sizes[axis - 1]
        return self.contiguous(self._tensor(view, tuple(reversed(sizes))))

    def slide(self, x: Tensor, width: int) -> Tensor:
        """Returns the view y [A, T, width] with y[..., t, j] = x[..., t, T - 1 - t + j], for x [A, T, at least T - 1 +
        width].
        """
        count, rows, length = x.shape
        step = length - 1 if rows > 1 else length
        pointer = self._library.view_3d(
            self._context, x.pointer, width, rows, count, 4 * step, 4 * length * rows, 4 * (rows - 1)
        )
        return self._tensor(pointer, (count, rows, width))

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Returns the same values in another shape of two to four dimensions."""
        library = self._library
        function = {2: library.reshape_2d, 3: library.reshape_3d, 4: library.reshape_4d}[len(shape)]
        return self._tensor(function(self._context, x.pointer, *reversed(shape)), shape)

    def is_contiguous(self, x: Tensor) -> bool:
        """Returns whether the values of x follow each other in memory without gaps."""
        return bool(self._library.is_contiguous(x.pointer))

    def contiguous(self, x: Tensor) -> Tensor:
        """Returns a contiguous copy of a view."""
        return self._tensor(self._library.cont(self._context, x.pointer), x.shape)

    def concatenate(self, x: Tensor, y: Tensor) -> Tensor:
        """Appends y [S, D] to x [T, D]."""
        pointer = self._library.concat(self._context, x.pointer, y.pointer, len(x.shape) - 1)
        return self._tensor(pointer, (x.shape[0] + y.shape[0], *x.shape[1:]))

    def concatenate_channels(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns x [T, D] and y [T, E] side by side: [T, D + E]."""
        pointer = self._library.concat(self._context, x.pointer, y.pointer, 0)
        return self._tensor(pointer, (x.shape[0], x.shape[1] + y.shape[1]))

    def pad_image(self, x: Tensor, around: int) -> Tensor:
        """Adds zeros on the four sides of an image [H, W, D]."""
        height, width, depth = x.shape
        pointer = self._library.pad_ext(self._context, x.pointer, 0, 0, around, around, around, around, 0, 0)
        return self._tensor(pointer, (height + 2 * around, width + 2 * around, depth))

    def pad_frames(self, x: Tensor, left: int, right: int) -> Tensor:
        """Adds rows of zeros before and after x [T, D]."""
        pointer = self._library.pad_ext(self._context, x.pointer, 0, 0, left, right, 0, 0, 0, 0)
        return self._tensor(pointer, (left + x.shape[0] + right, *x.shape[1:]))
