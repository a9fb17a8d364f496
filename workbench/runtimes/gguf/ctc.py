"""The CTC head on ggml: encoder output to logits over the vocabulary."""

from __future__ import annotations

import numpy as np

from workbench.runtimes.gguf.graph import Engine, Graph
from workbench.runtimes.gguf.weights import Scope, Tensor

BLOCK = 128  # frames in one go: the logits of a long recording need not lie in memory twice
FAST_ROWS = 16  # ggml's fast kernels take a matrix whose rows are a multiple of this; the rest goes by itself


def head(g: Graph, encoded: Tensor, scope: Scope, vocabulary: int) -> dict[str, Tensor]:
    """Logits of encoded frames [T, D] as parts of the vocabulary, in order: [T, part] each."""
    whole = vocabulary // FAST_ROWS * FAST_ROWS
    parts = {"most": slice(0, whole), "rest": slice(whole, vocabulary)}
    return {
        name: g.linear(encoded, scope / "ctc" / "ctc_lo", vocabulary, rows=part)
        for name, part in parts.items()
        if part.stop > part.start
    }


def logits(engine: Engine, encoded: np.ndarray, vocabulary: int, prefix: str = "") -> np.ndarray:
    """CTC logits [T, V] of encoded frames [T, D]."""
    found = np.empty((len(encoded), vocabulary), dtype=np.float32)
    scope = Scope(engine.weights, prefix)
    for first in range(0, len(encoded), BLOCK):
        block = encoded[first : first + BLOCK]
        parts = engine.run(lambda g, block=block: head(g, g.input(block), scope, vocabulary))  # type: ignore[misc]
        np.concatenate(list(parts.values()), axis=1, out=found[first : first + BLOCK])
    return found
