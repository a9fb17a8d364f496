"""Weights in ggml: every type against the gguf package's arithmetic; mapped, copied and repacked layouts."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from tests.runtimes.gguf.graphs.test_graph import random_array
from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
# ggml rounds the input to the type of the product: to 8 bits for quantised types, and to bfloat16 with its 8 bits.
TOLERANCE = {"F32": 1e-5, "F16": 2e-3, "BF16": 2e-2}


def write_matrix(folder: Path, kind: str, values: np.ndarray, alignment: int = 32) -> GgufFile:
    path = folder / f"{kind}-{alignment}.gguf"
    writer = gguf.GGUFWriter(str(path), "test")
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    writer.add_tensor("odd", np.ones(3, dtype=np.float32))
    number = GGMLQuantizationType[kind]
    if kind in ("F32", "F16"):
        writer.add_tensor("m.weight", values.astype({"F32": np.float32, "F16": np.float16}[kind]))
    else:
        writer.add_tensor("m.weight", quants.quantize(values, number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf(path)


@pytest.mark.parametrize("repack", [True, False])
@pytest.mark.parametrize("alignment", [32, 8])
@pytest.mark.parametrize("kind", TYPES)
def test_matrix_products_of_every_weight_type_equal_the_reference(
    tmp_path: Path, kind: str, alignment: int, repack: bool
) -> None:
    file = write_matrix(tmp_path, kind, random_array(48, 64), alignment)
    engine, x = GraphRunner(file, threads=1, repack=repack), random_array(10, 64, seed=1)
    for rows in (slice(0, 48), slice(16, 40)):
        output = engine.run(lambda g, rows=rows: {"it": g.linear(g.input(x), g.scope / "m", 48, False, rows)})["it"]  # type: ignore[misc]
        expected = x @ file.array("m.weight")[rows].T
        scale = np.abs(expected).max()
        assert np.abs(output - expected).max() <= TOLERANCE.get(kind, 2e-2) * scale
    engine.close()


@pytest.mark.parametrize("outputs", [32, 64, 96, 160])
@pytest.mark.parametrize("inputs", [32, 64, 96])
@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_1", "Q4_0"])
def test_matrix_products_in_repacked_layouts_equal_the_reference(
    tmp_path: Path, kind: str, inputs: int, outputs: int
) -> None:
    file = write_matrix(tmp_path, kind, random_array(outputs, inputs))
    engine = GraphRunner(file, threads=2)
    for frames in (1, 2, 31, 32, 33, 70):
        x = random_array(frames, inputs, seed=frames)
        output = engine.run(lambda g, x=x: {"it": g.linear(g.input(x), g.scope / "m", outputs, False)})["it"]  # type: ignore[misc]
        expected = x @ file.array("m.weight").T
        assert np.abs(output - expected).max() <= TOLERANCE.get(kind, 2e-2) * np.abs(expected).max()
    engine.close()


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_requested_float32_weights_are_converted(tmp_path: Path, kind: str) -> None:
    file = write_matrix(tmp_path, kind, random_array(32, 64))
    engine = GraphRunner(file, threads=1)
    outputs = engine.run(
        lambda g: {"it": g.add(g.scale(g.scope.array("m.weight", (32, 64)), 1.0), g.input(random_array(1, 64)))}
    )
    np.testing.assert_allclose(outputs["it"], file.array("m.weight") + random_array(1, 64), atol=1e-6)
    engine.close()


def test_weight_type_without_a_ggml_product_raises_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "it.gguf"
    writer = gguf.GGUFWriter(str(path), "test")
    writer.add_tensor("m.weight", np.zeros((4, 32), dtype=np.int8))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    engine = GraphRunner(read_gguf(path), threads=1)
    with pytest.raises(BadInput, match=r"m\.weight is of type I8"):
        engine.check(lambda g: {"it": g.linear(g.input(random_array(1, 32)), g.scope / "m", 4, bias=False)})


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    engine = GraphRunner(write_matrix(tmp_path, "F32", random_array(4, 32)), threads=1)
    engine.run(lambda g: {"it": g.linear(g.input(random_array(1, 32)), g.scope / "m", 4, bias=False)})
    engine.close()
    engine.close()
