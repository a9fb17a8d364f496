"""The graph builder: every operation against its definition in numpy or torch, for any length and width."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Tensor
from workbench.trace.recorder import Recorder

Shape = tuple[int, ...]


def write_file(path: Path, **tensors: np.ndarray) -> GgufFile:
    """Writes the tensors to a GGUF file and reads it; double underscores in their names stand for dots."""
    writer = gguf.GGUFWriter(str(path), "test")
    for name, values in tensors.items():
        writer.add_tensor(name.replace("__", "."), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf(path)


def random_array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphRunner]:
    folder = tmp_path_factory.mktemp("graph")
    file = write_file(
        folder / "it.gguf",
        a__weight=random_array(24, 16),
        a__bias=random_array(24, seed=1),
        n__weight=random_array(16, seed=2),
        n__bias=random_array(16, seed=3),
        half__weight=random_array(24, 16, seed=4).astype(np.float16),
    )
    engine = GraphRunner(file, threads=2)
    yield engine
    engine.close()


def compute(engine: GraphRunner, build: Callable[[Graph], Tensor]) -> np.ndarray:
    return engine.run(lambda g: {"it": build(g)})["it"]


@pytest.mark.parametrize("frames", [1, 2, 7, 130])
def test_linear_layer_equals_numpy(engine: GraphRunner, frames: int) -> None:
    x, file = random_array(frames, 16, seed=5), engine.weights.file
    expected = x @ file.array("a.weight").T + file.array("a.bias")
    np.testing.assert_allclose(compute(engine, lambda g: g.linear(g.input(x), g.scope / "a", 24)), expected, atol=1e-5)
    rows = slice(8, 24)
    np.testing.assert_allclose(
        compute(engine, lambda g: g.linear(g.input(x), g.scope / "a", 24, rows=rows)), expected[:, rows], atol=1e-5
    )


def test_float16_matrix_rounds_its_input_to_float16(engine: GraphRunner) -> None:
    x, weight = random_array(5, 16, seed=5), engine.weights.file.array("half.weight")
    output = compute(engine, lambda g: g.linear(g.input(x), g.scope / "half", 24, bias=False))
    np.testing.assert_allclose(output, x.astype(np.float16).astype(np.float32) @ weight.T, atol=1e-4)


@pytest.mark.parametrize("eps", [1e-5, 1e-12])
def test_layer_norm_equals_pytorch(engine: GraphRunner, eps: float) -> None:
    x, file = random_array(9, 16, seed=6) * 3 + 1, engine.weights.file
    gain, bias = (torch.from_numpy(file.array(f"n.{name}").copy()) for name in ("weight", "bias"))
    expected = F.layer_norm(torch.from_numpy(x), (16,), gain, bias, eps).numpy()
    np.testing.assert_allclose(
        compute(engine, lambda g: g.layer_norm(g.input(x), g.scope / "n", eps)), expected, atol=1e-5
    )


@pytest.mark.parametrize(("frames", "keys"), [(1, 1), (3, 70), (65, 64), (130, 7), (64, 64), (500, 390), (400, 400)])
def test_attention_equals_pytorch(engine: GraphRunner, frames: int, keys: int) -> None:
    q, k, v = random_array(frames, 32), random_array(keys, 32, seed=1), random_array(keys, 32, seed=2)
    heads = [torch.from_numpy(each).unflatten(1, (4, 8)).transpose(0, 1) for each in (q, k, v)]
    expected = F.scaled_dot_product_attention(*heads).transpose(0, 1).flatten(1).numpy()
    output = compute(engine, lambda g: g.attention(g.input(q), g.input(k), g.input(v), 4))
    np.testing.assert_allclose(output, expected, atol=1e-5)
    if frames == keys:
        fused = np.concatenate([q, k, v], axis=1)
        fused_output = compute(engine, lambda g: g.self_attention(g.input(fused), 4))
        np.testing.assert_allclose(fused_output, expected, atol=1e-5)


def test_long_attention_is_the_same_with_any_number_of_threads(engine: GraphRunner) -> None:
    fused = random_array(900, 3 * 32)
    with_two_threads = compute(engine, lambda g: g.self_attention(g.input(fused), 4))
    [with_one_thread] = engine.run_parallel([lambda: compute(engine, lambda g: g.self_attention(g.input(fused), 4))])
    np.testing.assert_array_equal(with_two_threads, with_one_thread)


@settings(deadline=None, max_examples=25)
@given(frames=st.integers(1, 300), hidden=st.integers(0, 3), spare=st.integers(0, 5))
def test_relative_attention_equals_the_definition(engine: GraphRunner, frames: int, hidden: int, spare: int) -> None:
    heads, width, valid = 2, 4, max(frames - hidden, 1)
    size = heads * width
    content, place, k, v = (random_array(frames, size, seed=seed) for seed in range(4))
    positions = random_array(2 * frames - 1 + spare, size, seed=4)
    inputs = content, place, k, v, positions
    output = compute(engine, lambda g: g.long_relative_attention(*map(g.input, inputs), heads, valid))
    q, r, keys, values, table = (each.astype(np.float64).reshape(len(each), heads, width) for each in inputs)
    # The first position is that of key 0 for the last query; a query before it begins one position further.
    rows = frames - 1 - np.arange(frames)[:, None] + np.arange(valid)
    scores = np.einsum("qhw,khw->hqk", q, keys[:valid]) + np.einsum("qhw,qkhw->hqk", r, table[rows])
    weights = np.exp(scores / np.sqrt(width) - (scores / np.sqrt(width)).max(axis=2, keepdims=True))
    expected = np.einsum("hqk,khw->qhw", weights / weights.sum(axis=2, keepdims=True), values[:valid])
    np.testing.assert_allclose(output, expected.reshape(frames, size), atol=1e-5)


def test_relative_attention_is_the_same_with_any_number_of_threads(engine: GraphRunner) -> None:
    rows = [random_array(*shape, seed=seed) for seed, shape in enumerate([(400, 32)] * 4 + [(799, 32)])]
    with_two_threads = compute(engine, lambda g: g.long_relative_attention(*map(g.input, rows), 4, 398))
    [with_one_thread] = engine.run_parallel(
        [lambda: compute(engine, lambda g: g.long_relative_attention(*map(g.input, rows), 4, 398))]
    )
    np.testing.assert_array_equal(with_two_threads, with_one_thread)


def test_numpy_error_inside_a_graph_is_raised_to_the_caller(engine: GraphRunner) -> None:
    def raise_error(*_: np.ndarray) -> None:
        raise ValueError("no such row")

    with pytest.raises(ValueError, match="no such row"):
        compute(engine, lambda g: g.map_rows(g.input(random_array(3, 4)), raise_error))


def memory_by_loops(x: np.ndarray, kernel: np.ndarray, left: int) -> np.ndarray:
    """x plus its depthwise convolution, frame by frame and tap by tap, in float64."""
    output = x.astype(np.float64)
    for t in range(len(x)):
        for tap in range(len(kernel)):
            source = t + tap - left
            if 0 <= source < len(x):
                output[t] += kernel[tap].astype(np.float64) * x[source]
    return output


@settings(deadline=None, max_examples=150)
@given(
    frames=st.integers(1, 40),
    width=st.integers(1, 40),
    size=st.integers(1, 21),
    shift=st.integers(0, 10),
    seed=st.integers(0, 9),
)
def test_fsmn_is_exact_for_any_shape(
    engine: GraphRunner, frames: int, width: int, size: int, shift: int, seed: int
) -> None:
    shift = min(shift, size // 2 if size % 2 else max(size // 2 - 1, 0))
    x, kernel = random_array(frames, width, seed=seed), random_array(size, width, seed=seed + 1)
    output = compute(engine, lambda g: g.fsmn(g.input(x), g.input(kernel), shift))
    expected = memory_by_loops(x, kernel, (size - 1) // 2 + shift)
    np.testing.assert_allclose(output, expected, atol=2e-6 * size)


def test_elementwise_operations_equal_numpy(engine: GraphRunner) -> None:
    x, y = random_array(6, 10), random_array(6, 10, seed=1)
    sigmoid = 1 / (1 + np.exp(-x))
    expected = {
        "add": x + y, "mul": x * y, "scale": 0.5 * x, "relu": np.maximum(x, 0), "silu": x * sigmoid, "sigmoid": sigmoid
    }  # fmt: skip
    outputs = engine.run(
        lambda g: {
            "add": g.add(g.input(x), g.input(y)),
            "mul": g.mul(g.input(x), g.input(y)),
            "scale": g.scale(g.input(x), 0.5),
            "relu": g.relu(g.input(x)),
            "silu": g.silu(g.input(x)),
            "sigmoid": g.sigmoid(g.input(x)),
        }
    )
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values, atol=1e-6, err_msg=name)


def test_padding_concatenation_columns_and_reshape_equal_numpy(engine: GraphRunner) -> None:
    x, y = random_array(3, 4), random_array(5, 4, seed=1)
    outputs = engine.run(
        lambda g: {
            "padded": g.pad_frames(g.input(x), 2, 1),
            "joined": g.concatenate(g.input(x), g.input(y)),
            "columns": g.columns(g.input(y), 1, 3),
            "reshaped": g.reshape(g.input(x), (2, 6)),
        }
    )
    np.testing.assert_array_equal(outputs["padded"], np.pad(x, ((2, 1), (0, 0))))
    np.testing.assert_array_equal(outputs["joined"], np.concatenate([x, y]))
    np.testing.assert_array_equal(outputs["columns"], y[:, 1:3])
    np.testing.assert_array_equal(outputs["reshaped"], x.reshape(2, 6))


def test_recorder_stores_only_requested_stages_with_their_tapped_values(engine: GraphRunner) -> None:
    x, recorder = random_array(4, 10), Recorder(lambda name: name != "unwanted")

    def build(g: Graph) -> dict[str, Tensor]:
        a = g.tap("first", g.relu(g.input(x)))
        b = g.tap("unwanted", g.scale(a, 2.0))
        return {"it": g.tap("last", g.relu(g.add(b, a)))}

    output = engine.run(build, recorder)["it"]
    assert list(recorder.stages) == ["first", "last"]
    np.testing.assert_array_equal(recorder.stages["first"], np.maximum(x, 0))
    np.testing.assert_array_equal(recorder.stages["last"], output)


def test_stage_is_recorded_after_the_same_graph_ran_without_a_recorder(engine: GraphRunner) -> None:
    """Without a recorder values share memory; a later run with a recorder must not use the plan for this."""
    x = random_array(16, 64)

    def build(g: Graph) -> dict[str, Tensor]:
        y = g.input(x)
        for number in range(12):
            y = g.tap(f"layers.{number}", g.relu(g.add(g.scale(y, -0.9), g.input(x))))
        return {"it": y}

    for prefix in ("layers.3", "layers.", "none", "layers.7"):
        recorder = Recorder(lambda name, prefix=prefix: name.startswith(prefix))  # type: ignore[misc]
        engine.run(build)
        engine.run(build, recorder)
        expected = x
        for number in range(12):
            expected = np.maximum(-0.9 * expected + x, 0)
            if f"layers.{number}" in recorder.stages:
                np.testing.assert_allclose(recorder.stages[f"layers.{number}"], expected, atol=1e-5)


def test_graph_that_exceeds_its_node_limit_is_rebuilt(engine: GraphRunner) -> None:
    engine._nodes = 8
    x, times = random_array(2, 4), []

    def build(g: Graph) -> dict[str, Tensor]:
        times.append(1)
        y = g.input(x)
        for _ in range(40):
            y = g.scale(y, 1.0)
        return {"it": y}

    np.testing.assert_array_equal(engine.run(build)["it"], x)
    assert len(times) > 1


def test_results_do_not_depend_on_earlier_computations(engine: GraphRunner) -> None:
    """Runs share the compute buffer; values of a longer graph must not remain in a shorter one."""

    def run_layer(frames: int) -> np.ndarray:
        x = random_array(frames, 16, seed=frames)
        return compute(engine, lambda g: g.relu(g.linear(g.input(x), g.scope / "a", 24)))

    first = {frames: run_layer(frames) for frames in (3, 50, 7)}
    for frames in (50, 7, 3, 50):
        np.testing.assert_array_equal(run_layer(frames), first[frames])


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [("b", 24, "no tensor b.weight"), ("a", 25, r"shape \(24, 16\); expected \(25, 16\)")],
)
def test_missing_or_misshapen_weights_raise_bad_input(engine: GraphRunner, name: str, shape: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        engine.check(lambda g: {"it": g.linear(g.input(random_array(2, 16)), g.scope / name, shape)})


@pytest.mark.parametrize("part", ["", "layers.1", "nothing"])
def test_substituted_stage_values_are_used_by_later_stages(engine: GraphRunner, part: str) -> None:
    """A stage at an input or at the end of the graph can be substituted too, and with nothing recorded."""
    x = random_array(4, 10)
    substitutes = {
        "begin": random_array(4, 10, seed=1),
        "layers.0": random_array(4, 10, seed=2).astype(np.float64),
        "end": random_array(4, 10),
    }

    def build(g: Graph) -> dict[str, Tensor]:
        y = g.tap("begin", g.input(x))
        for number in range(3):
            y = g.tap(f"layers.{number}", g.relu(g.add(g.scale(y, -0.9), g.input(x))))
        return {"it": g.tap("end", y)}

    def layer(y: np.ndarray) -> np.ndarray:
        return np.maximum(x - np.float32(0.9) * y.astype(np.float32), 0)

    expected = {"begin": x, "layers.0": layer(substitutes["begin"]), "layers.1": layer(substitutes["layers.0"])}
    expected["end"] = expected["layers.2"] = layer(expected["layers.1"])
    recorder = Recorder(lambda stage: part in stage, substitutes)
    np.testing.assert_array_equal(engine.run(build, recorder)["it"], substitutes["end"])
    order = ("begin", "layers.0", "layers.1", "layers.2", "end")
    assert list(recorder.stages) == [stage for stage in order if part in stage]
    for stage, values in recorder.stages.items():
        np.testing.assert_allclose(values, expected[stage], rtol=1e-6, atol=1e-6, err_msg=stage)


def test_rebuilt_graph_uses_the_substituted_stage_values(engine: GraphRunner) -> None:
    engine._nodes = 2
    substitute = random_array(3, 5, seed=4)
    recorder = Recorder(lambda _: True, {"a": substitute})
    outputs = engine.run(lambda g: {"it": g.scale(g.tap("a", g.relu(g.input(random_array(3, 5)))), 2.0)}, recorder)
    np.testing.assert_array_equal(outputs["it"], 2 * substitute)
    np.testing.assert_array_equal(recorder.stages["a"], np.maximum(random_array(3, 5), 0))


def test_non_finite_weights_are_refused(tmp_path: Path) -> None:
    file = write_file(tmp_path / "it.gguf", a__weight=random_array(4, 8), a__bias=np.array([1, np.inf], np.float16))
    with pytest.raises(BadInput, match=r"^tensor a\.bias in it\.gguf holds values that are not finite"):
        GraphRunner(file)
