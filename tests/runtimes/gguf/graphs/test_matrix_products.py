"""Linear layers that numpy computes in a ggml graph: their values for each type, equal for any number of threads."""

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


@pytest.fixture(params=["GenuineIntel", "AuthenticAMD"])
def maker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The maker of a processor with AVX-512; numpy takes more types on Intel's."""
    monkeypatch.setattr(matrix_products, "vendor", lambda: request.param)
    monkeypatch.setattr(matrix_products, "flags", lambda: frozenset(["avx512f"]))
    matrix_products._min_frames.cache_clear()
    yield request.param
    matrix_products._min_frames.cache_clear()


def width_of(kind: str) -> int:
    return 64 if kind == "q8_0" else INPUTS


@pytest.mark.parametrize("frames", [47, 48, 95, 96, 128, 700])
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_equals_its_definition(engine: GraphRunner, maker: str, kind: str, frames: int) -> None:
    x, file = random_array(frames, width_of(kind)), engine.weights.file
    expected = x.astype(np.float64) @ file.array(f"{kind}.weight").astype(np.float64).T + file.array(f"{kind}.bias")
    stored = engine.weights.stored(f"{kind}.weight", (OUTPUTS, width_of(kind)))
    by_numpy = stored is not None and matrix_products.takes(stored.kind, frames)
    # ggml rounds the input to the type of the matrix.
    tolerance = 1e-4 if kind == "f32" or by_numpy else 0.5 if kind == "q8_0" else 0.2
    for rows in (None, slice(3, 599)):
        output = engine.run(layer(kind, x, rows))["y"]
        np.testing.assert_allclose(output, expected[:, rows or slice(None)], atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_the_same_with_any_number_of_threads(engine: GraphRunner, maker: str, kind: str) -> None:
    for frames in (300, 1100):
        x = random_array(frames, width_of(kind))
        with_three_threads = engine.run(layer(kind, x))["y"]
        with_one_thread = engine.run_parallel([lambda x=x: engine.run(layer(kind, x))["y"]] * 2)  # type: ignore[misc]
        for output in with_one_thread:
            np.testing.assert_array_equal(output, with_three_threads)


@pytest.mark.parametrize(
    ("kind", "frames", "maker", "expected"),
    [
        ("F32", 47, "GenuineIntel", False),
        ("F32", 48, "AuthenticAMD", True),
        ("BF16", 48, "GenuineIntel", True),
        ("F16", 127, "GenuineIntel", False),
        ("F16", 128, "GenuineIntel", True),
        ("F16", 5000, "AuthenticAMD", False),
        ("Q8_0", 95, "GenuineIntel", False),
        ("Q8_0", 96, "GenuineIntel", True),
        ("Q8_0", 5000, "AuthenticAMD", False),
        ("Q4_0", 5000, "GenuineIntel", False),
    ],
    indirect=["maker"],
)
def test_numpy_takes_a_type_where_it_is_faster(kind: str, frames: int, maker: str, expected: bool) -> None:
    assert matrix_products.takes(kind, frames) == expected


@pytest.mark.parametrize("maker", ["GenuineIntel"], indirect=True)
def test_without_wide_vectors_float16_is_left_to_ggml(monkeypatch: pytest.MonkeyPatch, maker: str) -> None:
    monkeypatch.setattr(matrix_products, "flags", lambda: frozenset(["avx2"]))
    assert not matrix_products.takes("F16", 5000)


def test_matrices_in_a_layout_of_the_processor_are_left_to_ggml(
    engine: GraphRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = engine.weights

    def repacked(kind: int, shape: tuple[int, int], start: int, count: int) -> Tensor | None:
        return weights._unchanged(kind, shape, start, count) if shape[0] == 32 else None

    monkeypatch.setattr(weights, "_in_layouts", set[str]())
    monkeypatch.setattr(weights, "_repacked", repacked)
    shape, few, others = (OUTPUTS, INPUTS), slice(0, 32), slice(32, 63)
    assert weights.stored("f16.weight", shape, others) is not None
    assert weights.stored("f16.weight", shape, few) is None
    assert weights.stored("f16.weight", shape, others) is None, "a part of the matrix is in a layout"


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
