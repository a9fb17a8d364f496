"""The operations of FunASR's C++ runtime, rebuilt with this project's binding as a substitute when it is not installed.

It builds SAN-M layers like that runtime: q, k and v copied out of one product; the FSMN memory as a pad and eleven
times copy, multiply and add; attention as product, scale, softmax and product with copies between. Its weights are in
plain buffers, ggml computes every product, and the CTC head is one product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from workbench.families.sanm.encoder import SanmConfig
from workbench.runtimes.gguf.graphs import matrix_products
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks import output_layer, sanm


class EagerGraph:
    """Replaces this project's operations by the substitute's in this process."""

    @staticmethod
    def install(engine: type[GraphRunner]) -> None:
        """Makes every engine created from now on compute like the C++ runtime."""
        plain = engine.__init__

        def without_repacking(self: GraphRunner, file: Any, threads: int | None = None, repack: bool = False) -> None:
            plain(self, file, threads, repack=False)

        engine.__init__ = without_repacking  # type: ignore[method-assign]
        sanm.sanm_attention = attention
        matrix_products.takes = lambda kind, frames: False
        output_layer.FAST_ROWS = 1
        output_layer.BLOCK = 1 << 30


def attention(g: Graph, x: Tensor, scope: Scope, config: SanmConfig, stage: str, bounds: Sequence[int] = ()) -> Tensor:
    """Computes `sanm_attention` of a single chunk with the C++ runtime's operations."""
    assert not bounds
    size, heads = config.output_size, config.attention_heads
    fused = g.linear(x, scope / "linear_q_k_v", 3 * size)
    q, k, v = (g.columns(fused, n * size, (n + 1) * size) for n in range(3))
    memory = _fsmn(g, v, (scope / "fsmn_block").array("weight", (config.kernel_size, size)))
    context = _context(g, q, k, v, heads)
    return g.add(g.linear(context, scope / "linear_out", size), memory)


def _fsmn(g: Graph, v: Tensor, kernel: Tensor) -> Tensor:
    frames, size = v.shape[0], kernel.shape[0]
    padded = g.pad_frames(v, (size - 1) // 2, (size - 1) // 2)
    memory = v
    for tap in range(size):
        shifted, weight = g.rows(padded, tap, tap + frames), g.rows(kernel, tap, tap + 1)
        memory = g.add(memory, g.mul(g.contiguous(shifted), weight))
    return memory


def _context(g: Graph, q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    width = q.shape[1]
    queries, keys = (g.split(x, heads) for x in (q, k))
    values = g.transpose(g.split(v, heads))
    weights = g.softmax(g.scale(g.matmul(keys, queries), 1.0 / math.sqrt(width // heads)))
    return g.join(g.matmul(values, weights))
