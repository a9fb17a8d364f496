"""Replays an encoder's passes over one recording on a GPU, from CUDA graphs.

A GPU computes most layers in less time than Python needs to start their kernels. An encoder of 70 layers has about
1,100 kernels. A CUDA graph starts them all in one call. It serves one shape only, so features are padded to the next
multiple of `STEP` frames, and the padding is masked. This file knows no family.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Encode = Callable[[Tensor, Tensor], Tensor]  # from features [1, T, input] and the row's frames [1] to [1, T, D]
Record = Callable[[Encode, Tensor, Tensor], Encode]

STEP = 64  # frames: 4 s of speech where a frame is 60 ms
MAX_FRAMES = 1024  # frames: a minute; longer chunks are rare, as the usual limit is 30 seconds


class GraphReplays:
    """Passes of one encoder, replayed from the second pass of each padded length on.

    The first pass of a length runs as usual: to record a pass takes longer than to run it, and many lengths never come
    again. There are at most `MAX_FRAMES / STEP` graphs.

    Args:
        record: makes the function that replays a pass; tests record without a GPU.
    """

    def __init__(self, record: Record | None = None):
        self._record = record or GraphMemory().record
        self._lengths: set[int] = set()
        self._graphs: dict[int, Encode] = {}

    def accepts(self, x: Tensor) -> bool:
        """Returns whether features [B, T, input] are those of one recording that is short enough.

        A pass that keeps its values for gradients is never replayed.
        """
        return len(x) == 1 and 0 < x.shape[1] <= MAX_FRAMES and torch.is_inference_mode_enabled()

    def __call__(self, encode: Encode, x: Tensor) -> Tensor:
        """Returns what `encode` returns for features [1, T, input]: [1, T, D]."""
        frames = x.shape[1]
        size = -(-frames // STEP) * STEP
        lengths = torch.full((1,), frames, device=x.device)
        padded = torch.nn.functional.pad(x, (0, 0, 0, size - frames))
        if size not in self._lengths:
            self._lengths.add(size)
            return encode(padded, lengths)[:, :frames]
        if size not in self._graphs:
            self._graphs[size] = self._record(encode, padded, lengths)
        return self._graphs[size](padded, lengths)[:, :frames]


class GraphMemory:
    """The memory that the graphs of one network share, as only one of them runs at a time."""

    def __init__(self) -> None:
        self._pool: Any = None

    def record(self, encode: Encode, x: Tensor, lengths: Tensor) -> Encode:
        """Records a pass over inputs of these shapes as a CUDA graph; returns the function that replays it.

        Its output is a copy, so that the next replay leaves it alone.
        """
        x, lengths = x.clone(), lengths.clone()  # the graph reads its inputs here, and nowhere else
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream(x.device)
        stream.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(stream):
            encode(x, lengths)  # libraries reserve their memory in the first pass on a stream
        torch.cuda.current_stream(x.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads of the process may use the GPU meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            output = encode(x, lengths)

        def replay(features: Tensor, frames: Tensor) -> Tensor:
            x.copy_(features)
            lengths.copy_(frames)
            graph.replay()
            return output.clone()

        return replay
