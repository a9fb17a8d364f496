"""A network's output layer on ggml: maps frames or tokens to logits over the vocabulary.

The layer has tens of thousands of rows. This file lets ggml use its fast kernels, and avoids a second copy of the
logits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor

BLOCK = 96  # frames computed at once
FAST_ROWS = 32  # ggml's fast kernels need a number of rows that is a multiple of this; the rest is a separate matrix


def logit_parts(g: Graph, x: Tensor, layer: Scope, vocabulary: int) -> dict[str, Tensor]:
    """Returns logits of x [T, D] as parts of the vocabulary, in order: [T, part] each.

    Args:
        layer: the scope of its `weight` and `bias`.
    """
    fast_rows = vocabulary // FAST_ROWS * FAST_ROWS
    parts = {"most": slice(0, fast_rows), "rest": slice(fast_rows, vocabulary)}
    return {name: g.linear(x, layer, vocabulary, rows=part) for name, part in parts.items() if part.stop > part.start}


def logit_blocks(engine: GraphRunner, x: np.ndarray, layer: Scope, vocabulary: int) -> Iterator[np.ndarray]:
    """Yields logits of x [T, D] in blocks of frames, together [T, V]; `layer` as in `logit_parts`."""
    for first in range(0, len(x), BLOCK):
        block = x[first : first + BLOCK]
        parts = engine.run(lambda g, block=block: logit_parts(g, g.input(block), layer, vocabulary))  # type: ignore[misc]
        yield np.concatenate(list(parts.values()), axis=1)


def logits(engine: GraphRunner, x: np.ndarray, layer: Scope, vocabulary: int) -> np.ndarray:
    """Returns all logits at once, [T, V]."""
    return np.concatenate([*logit_blocks(engine, x, layer, vocabulary)])
