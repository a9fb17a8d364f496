"""The output layer gives the same logits for any split into rows and blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.gguf_parts import write
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Scope
from workbench.runtimes.gguf.networks import output_layer


@pytest.mark.parametrize("vocabulary", [1, 15, 16, 17, 80, 83])
@pytest.mark.parametrize("frames", [1, 6, 7, 20])
def test_output_layer_logits_do_not_depend_on_the_split_into_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vocabulary: int, frames: int
) -> None:
    monkeypatch.setattr(output_layer, "BLOCK", 6)
    rng = np.random.default_rng(vocabulary)
    weight, bias, x = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((vocabulary, 12), (vocabulary,), (frames, 12))
    )

    def fill(writer):
        writer.add_tensor("out.layer.weight", weight)
        writer.add_tensor("out.layer.bias", bias)

    engine = GraphRunner(read_gguf(write(tmp_path / "it.gguf", fill)), threads=1)
    logits = output_layer.logits(engine, x, Scope(engine.weights) / "out" / "layer", vocabulary)
    np.testing.assert_allclose(logits, x @ weight.T + bias, atol=1e-5)
