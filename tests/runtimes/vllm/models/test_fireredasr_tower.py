"""FireRedASR's tower on vLLM's modules compared with the PyTorch runtime's network in float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.runtimes.vllm.models.worker import finish_loading, worker  # noqa: E402
from tests.support.tiny_checkpoints import drawn_tensors  # noqa: E402
from workbench.families.speech_llm.conformer import ConformerConfig, encoder_frames, valid_frames  # noqa: E402
from workbench.families.speech_llm.fireredasr import LENGTH_RULES, speech_tokens  # noqa: E402
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into  # noqa: E402
from workbench.runtimes.pytorch.fireredasr import AudioEmbeddingNetwork, read_checkpoint  # noqa: E402
from workbench.runtimes.pytorch.tap import tap_into  # noqa: E402
from workbench.runtimes.vllm.models import batching  # noqa: E402
from workbench.runtimes.vllm.models.fireredasr_tower import FireRedTower  # noqa: E402
from workbench.trace.recorder import Recorder  # noqa: E402
from workbench.trace.trace import StageFilter  # noqa: E402

DEMO = Path(__file__).resolve().parents[4] / "assets" / "demo-fireredasr"
TOLERANCE = 1e-5  # of values of order 1


@pytest.fixture(scope="module", autouse=True)
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with worker(tmp_path_factory.mktemp("worker") / "meeting"):
        yield


def pair(
    config: ConformerConfig, width: int, rate: int, tensors: dict | None = None
) -> tuple[AudioEmbeddingNetwork, FireRedTower]:
    """The network of the PyTorch runtime and the tower, with the same weights."""
    if tensors is None:
        random_tensors = drawn_tensors(AudioEmbeddingNetwork(config, width, rate), 3)
        # Halved, as the full random weights would amplify rounding up to the tolerance.
        tensors = {name: value / 2 if value.ndim > 1 else value for name, value in random_tensors.items()}
    network = build(AudioEmbeddingNetwork, config, width, rate)
    load_into(network, tensors, "the test")
    tower = FireRedTower(config, width, rate).eval()
    loaded = tower.load_weights(tensors.items())
    assert loaded == set(dict(tower.named_parameters()))
    finish_loading(tower)
    return network, tower


def random_features(lengths: Sequence[int], seed: int = 5) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal((length, 80)).astype(np.float32) for length in lengths]


def valid_of(lengths: Sequence[int], rule: str) -> list[int]:
    return [max(valid_frames(length, rule), 1) for length in lengths]


@torch.inference_mode()
def reference_embeddings(
    network: AudioEmbeddingNetwork, features: np.ndarray, rule: str, recorder: Recorder | None = None
) -> np.ndarray:
    """The embeddings of a single segment, as the session of the PyTorch runtime computes them."""
    length, rate = len(features), network.encoder_projector.downsample_rate
    padded = np.pad(features, ((0, max(4 * rate - length, 0)), (0, 0)))
    valid = torch.tensor(valid_of([length], rule))
    speech = network(torch.from_numpy(padded)[None], valid, tap_into(recorder))
    return speech[0, : speech_tokens(length, rate)].numpy()


@torch.inference_mode()
def tower_embeddings(
    tower: FireRedTower, features: Sequence[np.ndarray], rule: str, recorders: Sequence[Recorder | None] | None = None
) -> list[np.ndarray]:
    tensors = [torch.from_numpy(rows) for rows in features]
    return [rows.numpy() for rows in tower(tensors, valid_of([len(rows) for rows in features], rule), recorders)]


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    scale = max(float(np.abs(expected).max()), 1.0)
    np.testing.assert_allclose(actual / scale, expected / scale, rtol=0, atol=TOLERANCE)


SMALL = ConformerConfig(idim=80, n_layers=2, n_head=2, d_model=16, kernel_size=5, pe_maxlen=200)


@pytest.fixture(scope="module")
def small(one_worker: None) -> tuple[AudioEmbeddingNetwork, FireRedTower]:
    return pair(SMALL, 24, 2)


@given(
    lengths=st.lists(st.integers(0, 180), min_size=1, max_size=6),
    rule=st.sampled_from(LENGTH_RULES),
    max_scores=st.sampled_from([1, 2000, 2**26]),
    max_ratio=st.sampled_from([1.0, 1.25, 1000.0]),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batched_segments_equal_single_segments_on_pytorch(small, lengths, rule, max_scores, max_ratio) -> None:
    network, tower = small
    features = random_features(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "MAX_SCORES", max_scores)
        patch.setattr(batching, "LONGER", max_ratio)
        outputs = tower_embeddings(tower, features, rule)
    for rows, actual in zip(features, outputs, strict=True):
        assert_close(actual, reference_embeddings(network, rows, rule))


@given(
    heads=st.integers(1, 3),
    half=st.integers(1, 8),
    kernel=st.sampled_from([1, 3, 5, 33]),
    layers=st.integers(1, 2),
    rate=st.integers(1, 4),
    width=st.integers(1, 40),
    rule=st.sampled_from(LENGTH_RULES),
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sizes_come_from_the_configuration(one_worker, heads, half, kernel, layers, rate, width, rule) -> None:
    config = ConformerConfig(80, layers, heads, 2 * half * heads, kernel, 100)
    network, tower = pair(config, width, rate)
    features = random_features([57, 9, 4 * rate])
    for rows, actual in zip(features, tower_embeddings(tower, features, rule), strict=True):
        assert_close(actual, reference_embeddings(network, rows, rule))


@pytest.mark.parametrize("rule", LENGTH_RULES)
def test_tower_of_published_width_with_two_layers_equals_pytorch(one_worker: None, rule: str) -> None:
    network, tower = pair(ConformerConfig(80, 2, 20, 1280, 33, 5000), 3584, 2)
    features = random_features([98, 301, 170])
    for rows, actual in zip(features, tower_embeddings(tower, features, rule), strict=True):
        assert_close(actual, reference_embeddings(network, rows, rule))


@pytest.mark.parametrize("rule", LENGTH_RULES)
def test_tower_of_the_demo_equals_pytorch(one_worker: None, rule: str) -> None:
    checkpoint = read_checkpoint(DEMO)
    model = checkpoint.model
    tensors = dict(checkpoint.audio)
    network, tower = pair(model.encoder, model.language.hidden_size, model.downsample_rate, tensors)
    features = random_features([420, 31, 777, 98])
    for rows, actual in zip(features, tower_embeddings(tower, features, rule), strict=True):
        assert_close(actual, reference_embeddings(network, rows, rule))


@pytest.mark.parametrize("rule", LENGTH_RULES)
@pytest.mark.parametrize("length", [0, 7, 98, 150])
def test_recorded_stages_equal_pytorch(small, rule: str, length: int) -> None:
    network, tower = small
    features = random_features([180, length, 33])
    expected, actual = Recorder(StageFilter()), Recorder(StageFilter())
    embeddings = tower_embeddings(tower, features, rule, [None, actual, None])
    assert_close(embeddings[1], reference_embeddings(network, features[1], rule, expected))
    assert list(actual.stages) == list(expected.stages)
    for stage, value in expected.stages.items():
        assert actual.stages[stage].dtype == np.float32
        assert_close(actual.stages[stage], value)


def test_each_recorder_gets_only_its_requested_stages_of_its_own_segment(small) -> None:
    _, tower = small
    features = random_features([50, 120])
    first, second = Recorder(lambda stage: stage == "encoder.input"), Recorder(lambda stage: stage == "encoder.output")
    tower_embeddings(tower, features, "release", [first, second])
    assert {stage: len(rows) for stage, rows in first.stages.items()} == {"encoder.input": encoder_frames(50)}
    assert {stage: len(rows) for stage, rows in second.stages.items()} == {"encoder.output": encoder_frames(120)}


def test_hooks_exist_only_while_recording(small) -> None:
    _, tower = small

    def hooks() -> int:
        return sum(len(module._forward_hooks) for module in tower.modules())

    counts = []
    handle = tower.encoder.register_forward_pre_hook(lambda *_: counts.append(hooks()))
    try:
        tower_embeddings(tower, random_features([50]), "release")
        tower_embeddings(tower, random_features([50]), "release", [None])
        tower_embeddings(tower, random_features([50]), "release", [Recorder(StageFilter())])
    finally:
        handle.remove()
    assert counts[:2] == [0, 0] and counts[2] > 0
    assert hooks() == 0


def test_the_tower_is_float32_in_a_model_of_another_dtype(one_worker: None) -> None:
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        tower = FireRedTower(SMALL, 24, 2)
    finally:
        torch.set_default_dtype(default)
    assert {value.dtype for value in [*tower.parameters(), *tower.buffers()]} == {torch.float32}


def test_unknown_weight_is_refused_by_name(small) -> None:
    _, tower = small
    with pytest.raises(ValueError, match=r"strange"):
        tower.load_weights([("encoder.strange.weight", torch.zeros(1))])
