"""Linear layers that numpy computes in a ggml graph: their values for each float type, identical for any number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.graphs import matrix_products
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Tensor

INPUTS, OUTPUTS = 48, 600
KINDS = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphRunner]:
    rng = np.random.default_rng(7)
    path = tmp_path_factory.mktemp("products") / "it.gguf"
    writer = gguf.GGUFWriter(str(path), "test")
    for name, kind in KINDS.items():
        values = rng.standard_normal((OUTPUTS, 64)).astype(np.float32)[:, : 64 if name == "q8_0" else INPUTS]
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
        writer.add_tensor(f"{name}.bias", rng.standard_normal(OUTPUTS).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    engine = GraphRunner(read_gguf(path), threads=3)
    yield engine
    engine.close()


def layer(kind: str, x: np.ndarray, rows: slice | None = None) -> Callable[[Graph], dict[str, Tensor]]:
    """A function that builds the layer of that type."""

    def build(g: Graph) -> dict[str, Tensor]:
        return {"y": g.linear(g.input(x), g.scope / kind, OUTPUTS, rows=rows)}

    return build


def random_array(frames: int, width: int = INPUTS) -> np.ndarray:
    return np.random.default_rng(frames).standard_normal((frames, width)).astype(np.float32)


@pytest.mark.parametrize("frames", [47, 48, 700])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_a_layer_equals_its_definition(engine: GraphRunner, kind: str, frames: int) -> None:
    x, file = random_array(frames), engine.weights.file
    expected = x.astype(np.float64) @ file.array(f"{kind}.weight").astype(np.float64).T + file.array(f"{kind}.bias")
    # ggml rounds the input to the type of the matrix.
    tolerance = 1e-4 if kind == "f32" or (kind == "bf16" and frames >= matrix_products.MIN_FRAMES) else 0.2
    for rows in (None, slice(3, 599)):
        output = engine.run(layer(kind, x, rows))["y"]
        np.testing.assert_allclose(output, expected[:, rows or slice(None)], atol=tolerance)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_a_layer_is_the_same_with_any_number_of_threads(engine: GraphRunner, kind: str) -> None:
    x = random_array(1100)
    with_three_threads = engine.run(layer(kind, x))["y"]
    with_one_thread = engine.run_parallel([lambda: engine.run(layer(kind, x))["y"]] * 2)
    for output in with_one_thread:
        np.testing.assert_array_equal(output, with_three_threads)


def test_float16_and_quantised_matrices_are_computed_by_ggml(engine: GraphRunner) -> None:
    assert engine.weights.floats("f16.weight", (OUTPUTS, INPUTS)) is None
    assert engine.weights.floats("q8_0.weight", (OUTPUTS, 64)) is None
    x, file = random_array(60, 64), engine.weights.file
    expected = x @ file.array("q8_0.weight").T + file.array("q8_0.bias")
    np.testing.assert_allclose(engine.run(layer("q8_0", x))["y"], expected, atol=0.5)


def test_non_contiguous_input_is_read_correctly(engine: GraphRunner) -> None:
    x = np.ascontiguousarray(random_array(INPUTS, 64))

    def build(g: Graph) -> dict[str, Tensor]:
        transposed = g.reshape(g.transpose(g.reshape(g.input(x), (1, INPUTS, 64))), (64, INPUTS))
        wide = g.input(np.concatenate([x.T, x.T], axis=1))
        return {
            "y": g.linear(transposed, g.scope / "f32", OUTPUTS),
            "z": g.linear(narrow(g, wide), g.scope / "f32", OUTPUTS),
        }

    def narrow(g: Graph, wide: Tensor) -> Tensor:
        view = g._library.view_2d(g._context, wide.pointer, INPUTS, 64, 8 * INPUTS, 4 * INPUTS)
        return g._tensor(view, (64, INPUTS))

    outputs = engine.run(build)
    np.testing.assert_allclose(outputs["y"], outputs["z"], atol=1e-4)


@pytest.mark.filterwarnings("error")
def test_overflowing_values_give_infinity_without_warnings(engine: GraphRunner) -> None:
    x = np.full((64, INPUTS), 3e38, np.float32)
    output = engine.run(layer("f32", x))["y"]
    assert np.isinf(output).any() and output.shape == (64, OUTPUTS)


@given(st.integers(1, 5000), st.integers(1, 30000))
def test_tasks_cover_every_value_once(frames: int, outputs: int) -> None:
    tasks = matrix_products.tasks(frames, outputs)
    sizes = [(rows.stop - rows.start, columns.stop - columns.start) for rows, columns in tasks]
    assert sum(height * width for height, width in sizes) == frames * outputs
    assert all(
        0 < height <= matrix_products.MAX_FRAMES and 0 < width <= matrix_products.MAX_OUTPUTS for height, width in sizes
    )
    assert len({(rows.start, columns.start) for rows, columns in tasks}) == len(tasks)
