"""The FSMN-VAD network: a numpy reference, and weights from ONNX and model.pt."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
onnx = pytest.importorskip("onnx", reason="needs the onnx package")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tests.families.voice_activity.test_fsmn_vad import CONFIG, ENCODER  # noqa: E402
from workbench.core.errors import BadInput  # noqa: E402
from workbench.core.settings import Settings  # noqa: E402
from workbench.families.voice_activity.fsmn_vad import FsmnConfig  # noqa: E402
from workbench.families.voice_activity.fsmn_vad_onnx import expected_shapes, read_onnx_weights  # noqa: E402
from workbench.pipelines.detection import fsmn_vad  # noqa: E402
from workbench.pipelines.detection.fsmn_vad import FsmnVad  # noqa: E402
from workbench.runtimes.pytorch.fsmn_vad import FsmnNetwork, FsmnRunner, open_fsmn_vad, open_session  # noqa: E402

Arrays = dict[str, np.ndarray]

SMALL = FsmnConfig(
    input_dim=400,
    input_affine_dim=9,
    linear_dim=11,
    proj_dim=6,
    lorder=4,
    lstride=1,
    fsmn_layers=2,
    output_affine_dim=8,
    output_dim=5,
)


def random_weights(config: FsmnConfig = SMALL, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    shapes = expected_shapes(config)
    return {
        name: (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32) for name, shape in shapes.items()
    }


def network_of(config: FsmnConfig, weights: Arrays) -> FsmnNetwork:
    network = FsmnNetwork(config).eval()
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return network


def literal(features: np.ndarray, weights: Arrays, config: FsmnConfig) -> np.ndarray:
    """The network frame by frame in float64: [frames, width] to [frames, classes]."""

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        bias = weights.get(f"{name}.bias", np.zeros(1))
        return x @ weights[f"{name}.weight"].T.astype(np.float64) + bias

    x = np.maximum(linear(linear(features, "encoder.in_linear1.linear"), "encoder.in_linear2.linear"), 0)
    for block in range(config.fsmn_layers):
        prefix = f"encoder.fsmn.{block}"
        low = linear(x, f"{prefix}.linear.linear")
        taps = weights[f"{prefix}.fsmn_block.conv_left.weight"][:, 0, :, 0]
        memory = low.copy()
        for frame in range(len(low)):
            for tap in range(config.lorder):
                past_frame = frame - (config.lorder - 1 - tap) * config.lstride
                if past_frame >= 0:
                    memory[frame] += taps[:, tap] * low[past_frame]
        x = np.maximum(linear(memory, f"{prefix}.affine.linear"), 0)
    logits = linear(linear(x, "encoder.out_linear1.linear"), "encoder.out_linear2.linear")
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def write_onnx(
    path: Path,
    weights: Arrays,
    config: FsmnConfig = SMALL,
    gemm: bool = False,
    change: Callable[[Any], None] | None = None,
) -> Path:
    """A graph as exporters write it: weights have no names, and the memory block has transpositions and zeros."""
    nodes: list[Any] = []
    tensors: list[Any] = []

    def initializer(array: np.ndarray) -> str:
        tensors.append(numpy_helper.from_array(np.ascontiguousarray(array), f"t{len(tensors)}"))
        return str(tensors[-1].name)

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(
            helper.make_node(kind, list(inputs), [f"n{len(nodes)}"], name=f"{kind}_{len(nodes)}", **attributes)
        )
        return str(nodes[-1].output[0])

    def linear(x: str, name: str) -> str:
        weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
        if gemm and bias is not None:
            return node("Gemm", x, initializer(weight), initializer(bias), transB=1)
        product = node("MatMul", x, initializer(weight.T))
        return product if bias is None else node("Add", initializer(bias), product)

    x = node("Relu", linear(linear("speech", "encoder.in_linear1.linear"), "encoder.in_linear2.linear"))
    past = (config.lorder - 1) * config.lstride
    for block in range(config.fsmn_layers):
        prefix = f"encoder.fsmn.{block}"
        low = linear(x, f"{prefix}.linear.linear")
        transposed = node(
            "Transpose", node("Unsqueeze", low, initializer(np.array([0 if gemm else 1]))), perm=[0, 3, 2, 1]
        )
        transposed = node("Transpose", transposed, perm=[0, 1, 2, 3])
        zeros = initializer(np.zeros((1, config.proj_dim, past, 1), dtype=np.float32))
        taps = initializer(weights[f"{prefix}.fsmn_block.conv_left.weight"])
        extended = node("Concat", zeros, transposed, axis=2)
        filtered = node("Conv", extended, taps, group=config.proj_dim, dilations=[config.lstride, 1])
        summed = node("Add", transposed, filtered)
        back = node("Squeeze", node("Transpose", summed, perm=[0, 3, 2, 1]), initializer(np.array([0 if gemm else 1])))
        x = node("Relu", linear(back, f"{prefix}.affine.linear"))
    logits = linear(linear(x, "encoder.out_linear1.linear"), "encoder.out_linear2.linear")
    node("Softmax", logits, axis=-1)
    shape = ["T", config.input_dim] if gemm else [1, "T", config.input_dim]
    inputs = [helper.make_tensor_value_info("speech", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
    model = helper.make_model(
        helper.make_graph(nodes, "vad", inputs, outputs, tensors), opset_imports=[helper.make_opsetid("", 14)]
    )
    if change is not None:
        change(model.graph)
    path.write_bytes(model.SerializeToString())
    return path


def write_mvn(path: Path, width: int = 400) -> None:
    values = {"AddShift": " ".join(["-10"] * width), "Rescale": " ".join(["0.15"] * width)}
    body = "".join(f"<{tag}> {width} {width}\n<LearnRateCoef> 0 [ {row} ]\n" for tag, row in values.items())
    path.write_text(f"<Nnet>\n<Splice> {width} {width}\n[ 0 ]\n{body}</Nnet>\n")


def pair(path: Path, weights: Arrays | None = None, **options: Any) -> Path:
    path.mkdir(exist_ok=True)
    write_onnx(path / "vad.onnx", random_weights() if weights is None else weights, **options)
    write_mvn(path / "am.mvn")
    return path


def inner(detector: FsmnVad) -> FsmnNetwork:
    assert isinstance(detector.network, FsmnRunner)
    return detector.network.network


def noise(seconds: float) -> np.ndarray:
    return 0.1 * np.random.default_rng(0).standard_normal(round(seconds * 16_000)).astype(np.float32)


# --- the network ---


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float64, 1e-14)])
@pytest.mark.parametrize("stride", [1, 2])
def test_network_equals_the_numpy_reference(stride: int, dtype: torch.dtype, error: float) -> None:
    config = FsmnConfig(**{**vars(SMALL), "lstride": stride})
    weights = random_weights(config)
    features = np.random.default_rng(1).standard_normal((30, 400)).astype(np.float32)
    network = network_of(config, weights).to(dtype)
    with torch.inference_mode():
        scores, _ = network(torch.from_numpy(features)[None].to(dtype), network.start())
    np.testing.assert_allclose(scores[0].numpy(), literal(features, weights, config), rtol=0, atol=error)


def test_a_session_in_float64_is_within_rounding_of_one_in_float32(tmp_path: Path) -> None:
    directory, sound = pair(tmp_path / "vad"), (noise(2.0), 16_000)
    single, double = (
        open_session(directory, "vad", Settings(threads=1, dtype=dtype)).trace(sound)
        for dtype in ("float32", "float64")
    )
    assert [trace.meta["dtype"] for trace in (single, double)] == ["float32", "float64"]
    assert [trace["vad.scores"].dtype for trace in (single, double)] == [np.float32, np.float64]
    assert 0 < np.abs(double["vad.scores"] - single["vad.scores"]).max() < 1e-5


def test_chunked_scores_equal_the_scores_of_one_pass() -> None:
    network = network_of(SMALL, random_weights())
    features = torch.randn(2, 50, 400, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected, _ = network(features, network.start(2))
        parts, past = [], network.start(2)
        for part in features.split([1, 2, 30, 17], dim=1):
            scores, past = network(part, past)
            parts.append(scores)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, atol=1e-5, rtol=0)


# --- ONNX files ---


@pytest.mark.parametrize("gemm", [False, True])
def test_weights_are_found_by_their_place_in_the_graph(tmp_path: Path, gemm: bool) -> None:
    weights = random_weights()
    config, actual = read_onnx_weights(write_onnx(tmp_path / "vad.onnx", weights, gemm=gemm))
    assert config == SMALL
    assert actual.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(actual[name], array)


def test_strides_are_read(tmp_path: Path) -> None:
    config = FsmnConfig(**{**vars(SMALL), "lstride": 2})
    actual, _ = read_onnx_weights(write_onnx(tmp_path / "vad.onnx", random_weights(config), config))
    assert actual == config


def test_detector_scores_equal_the_onnx_reference_evaluator(tmp_path: Path) -> None:
    from onnx.reference import ReferenceEvaluator

    detector = open_fsmn_vad(pair(tmp_path / "vad"))
    samples = noise(1.0)
    features = detector.frontend(samples).features
    (expected,) = ReferenceEvaluator(str(tmp_path / "vad" / "vad.onnx")).run(None, {"speech": features[None]})
    np.testing.assert_allclose(detector.scores(samples), expected[0], atol=1e-5)


def rename_node(kind: str, to: str) -> Callable[[Any], None]:
    def change(graph: Any) -> None:
        next(node for node in graph.node if node.op_type == kind).op_type = to

    return change


def change_to_integers(graph: Any) -> None:
    graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((400, 9), dtype=np.int8), "t0"))


def move_to_another_file(graph: Any) -> None:
    graph.initializer[0].data_location = TensorProto.EXTERNAL


def shorten(graph: Any) -> None:
    graph.initializer[0].raw_data = graph.initializer[0].raw_data[:-8]


def remove_residual(graph: Any) -> None:
    graph.node.remove(next(n for n in graph.node if n.op_type == "Add" and not any("t" in i for i in n.input)))


def widen(graph: Any) -> None:
    graph.initializer[2].CopyFrom(numpy_helper.from_array(np.ones((10, 11), dtype=np.float32), "t2"))


def remove_nodes(graph: Any) -> None:
    del graph.node[:]


def remove_end(graph: Any) -> None:
    del graph.node[-1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rename_node("Relu", "Sigmoid"), "its node Sigmoid (Relu_4) has no place in that network"),
        (rename_node("MatMul", "MatMulInteger"), "MatMulInteger"),
        (rename_node("Relu", "Softmax"), "step 5 of its graph is softmax, expected relu"),
        (change_to_integers, "weights of int8; expected floats"),
        (move_to_another_file, "keeps tensor t0 in another file"),
        (shorten, "tensor t0 is damaged"),
        (remove_residual, "step 8 of its graph is linear, expected residual"),
        (widen, "the tensor at encoder.in_linear2.linear.weight has shape (11, 10), the layers around it need (11, 9)"),
        (remove_nodes, "it has no graph"),
        (remove_end, "its graph has 21 steps, expected 22"),
    ],
)
def test_other_onnx_graphs_raise_one_line_error_with_the_file_name(
    tmp_path: Path, change: Callable[[Any], None], words: str
) -> None:
    path = write_onnx(tmp_path / "vad.onnx", random_weights(), change=change)
    with pytest.raises(BadInput) as caught:
        read_onnx_weights(path)
    assert words in str(caught.value) and "vad.onnx" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("kind", "name", "value"), [("Gemm", "beta", 0.5), ("Conv", "pads", [19, 0, 19, 0])])
def test_unsupported_onnx_layers_are_refused(tmp_path: Path, kind: str, name: str, value: Any) -> None:
    def change(graph: Any) -> None:
        node = next(node for node in graph.node if node.op_type == kind)
        node.attribute.append(helper.make_attribute(name, value))

    path = write_onnx(tmp_path / "vad.onnx", random_weights(), gemm=True, change=change)
    with pytest.raises(BadInput, match=f"its node {kind} .* has no place in that network"):
        read_onnx_weights(path)


def test_damaged_onnx_file_raises_an_error_with_the_file_name(tmp_path: Path) -> None:
    directory = pair(tmp_path / "vad")
    content = (directory / "vad.onnx").read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"not a network\n" * 9, content[100:]):
        (directory / "vad.onnx").write_bytes(damaged)
        with pytest.raises(BadInput, match=r"vad/vad\.onnx"):
            open_fsmn_vad(directory)


# --- directories ---


def test_model_pt_gives_the_same_as_onnx(tmp_path: Path) -> None:
    weights = random_weights()
    from_onnx = open_fsmn_vad(pair(tmp_path / "onnx", weights))
    directory = tmp_path / "torch"
    directory.mkdir()
    dimensions = {**ENCODER, **vars(SMALL)}
    (directory / "config.yaml").write_text(CONFIG.replace(str(ENCODER), str(dimensions)))
    write_mvn(directory / "am.mvn")
    torch.save({name: torch.from_numpy(array) for name, array in weights.items()}, directory / "model.pt")
    samples = noise(2.0)
    np.testing.assert_array_equal(open_fsmn_vad(directory).scores(samples), from_onnx.scores(samples))

    incomplete = {name: torch.from_numpy(array) for name, array in weights.items() if "fsmn.1.affine" not in name}
    torch.save(incomplete, directory / "model.pt")
    with pytest.raises(BadInput, match=r"torch/model\.pt lacks tensor encoder\.fsmn\.1\.affine\.linear\.weight"):
        open_fsmn_vad(directory)


def test_cmvn_or_network_of_another_feature_size_is_refused(tmp_path: Path) -> None:
    directory = pair(tmp_path / "vad")
    write_mvn(directory / "am.mvn", 80)
    with pytest.raises(BadInput, match="the CMVN has 80 values"):
        open_fsmn_vad(directory)
    narrow = FsmnConfig(**{**vars(SMALL), "input_dim": 80})
    directory = pair(tmp_path / "narrow", random_weights(narrow), config=narrow)
    with pytest.raises(BadInput, match="takes 80 features; expected 400"):
        open_fsmn_vad(directory)


# --- recordings ---


def test_scores_do_not_depend_on_the_block_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = open_fsmn_vad(pair(tmp_path / "vad"))
    samples = noise(5.003)
    expected = detector.scores(samples)
    assert expected.shape == (498, 5)
    features = detector.frontend(samples).features
    weights = {name: value.numpy() for name, value in inner(detector).state_dict().items()}
    np.testing.assert_allclose(expected, literal(features, weights, SMALL), atol=1e-5)
    for size in (1, 7, 100, 497):
        monkeypatch.setattr(fsmn_vad, "_BLOCK_FRAMES", size)
        np.testing.assert_allclose(detector.scores(samples), expected, atol=1e-5)


def test_empty_and_very_short_recordings_have_no_speech_segments(tmp_path: Path) -> None:
    detector = open_fsmn_vad(pair(tmp_path / "vad"))
    for samples in (0, 1, 160, 399, 400, 1000):
        sound = np.zeros(samples, dtype=np.float32)
        assert detector.spans(sound) == []
        assert len(detector.scores(sound)) == (0 if samples == 0 else 1 + max(0, samples - 400) // 160)
