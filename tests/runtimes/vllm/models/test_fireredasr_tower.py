"""FireRedASR's tower on vLLM's modules against the PyTorch runtime's network, float32, the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.runtimes.vllm.models.worker import made_ready, worker  # noqa: E402
from tests.support.tiny_checkpoints import drawn_tensors  # noqa: E402
from workbench.families.conformer import ConformerConfig, encoder_frames, valid_frames  # noqa: E402
from workbench.families.fireredasr import LENGTH_RULES, speech_tokens  # noqa: E402
from workbench.runtimes.pytorch.fireredasr import AudioEmbeddingNetwork, read_checkpoint  # noqa: E402
from workbench.runtimes.pytorch.tap import tap_into  # noqa: E402
from workbench.runtimes.pytorch.weights import build, load_into  # noqa: E402
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
        drawn = drawn_tensors(AudioEmbeddingNetwork(config, width, rate), 3)
        # Half as large: those that were drawn amplify rounding, on both sides, to the tolerance.
        tensors = {name: value / 2 if value.ndim > 1 else value for name, value in drawn.items()}
    network = build(AudioEmbeddingNetwork, config, width, rate)
    load_into(network, tensors, "the test")
    tower = FireRedTower(config, width, rate).eval()
    loaded = tower.load_weights(tensors.items())
    assert loaded == set(dict(tower.named_parameters()))
    made_ready(tower)
    return network, tower


def drawn_features(lengths: Sequence[int], seed: int = 5) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal((length, 80)).astype(np.float32) for length in lengths]


def valid_of(lengths: Sequence[int], rule: str) -> list[int]:
    return [max(valid_frames(length, rule), 1) for length in lengths]


@torch.inference_mode()
def expected(
    network: AudioEmbeddingNetwork, features: np.ndarray, rule: str, recorder: Recorder | None = None
) -> np.ndarray:
    """The embeddings of one stretch by itself, as the PyTorch runtime's session has them."""
    length, rate = len(features), network.encoder_projector.downsample_rate
    padded = np.pad(features, ((0, max(4 * rate - length, 0)), (0, 0)))
    valid = torch.tensor(valid_of([length], rule))
    speech = network(torch.from_numpy(padded)[None], valid, tap_into(recorder))
    return speech[0, : speech_tokens(length, rate)].numpy()


@torch.inference_mode()
def heard(
    tower: FireRedTower, features: Sequence[np.ndarray], rule: str, recorders: Sequence[Recorder | None] | None = None
) -> list[np.ndarray]:
    tensors = [torch.from_numpy(rows) for rows in features]
    return [rows.numpy() for rows in tower(tensors, valid_of([len(rows) for rows in features], rule), recorders)]


def check_close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    scale = max(float(np.abs(wanted).max()), 1.0)
    np.testing.assert_allclose(found / scale, wanted / scale, rtol=0, atol=TOLERANCE)


SMALL = ConformerConfig(idim=80, n_layers=2, n_head=2, d_model=16, kernel_size=5, pe_maxlen=200)


@pytest.fixture(scope="module")
def small(one_worker: None) -> tuple[AudioEmbeddingNetwork, FireRedTower]:
    return pair(SMALL, 24, 2)


@given(
    lengths=st.lists(st.integers(0, 180), min_size=1, max_size=6),
    rule=st.sampled_from(LENGTH_RULES),
    most=st.sampled_from([1, 2000, 2**26]),
    longer=st.sampled_from([1.0, 1.25, 1000.0]),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batched_segments_equal_single_segments_on_pytorch(small, lengths, rule, most, longer) -> None:
    network, tower = small
    features = drawn_features(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "MOST_SCORES", most)
        patch.setattr(batching, "LONGER", longer)
        found = heard(tower, features, rule)
    for rows, own in zip(features, found, strict=True):
        check_close(own, expected(network, rows, rule))


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
    features = drawn_features([57, 9, 4 * rate])
    for rows, own in zip(features, heard(tower, features, rule), strict=True):
        check_close(own, expected(network, rows, rule))


@pytest.mark.parametrize("rule", LENGTH_RULES)
def test_tower_of_published_width_with_two_layers_equals_pytorch(one_worker: None, rule: str) -> None:
    network, tower = pair(ConformerConfig(80, 2, 20, 1280, 33, 5000), 3584, 2)
    features = drawn_features([98, 301, 170])
    for rows, own in zip(features, heard(tower, features, rule), strict=True):
        check_close(own, expected(network, rows, rule))


@pytest.mark.parametrize("rule", LENGTH_RULES)
def test_tower_of_the_demo_equals_pytorch(one_worker: None, rule: str) -> None:
    checkpoint = read_checkpoint(DEMO)
    model = checkpoint.model
    tensors = dict(checkpoint.hearing)
    network, tower = pair(model.encoder, model.language.hidden_size, model.downsample_rate, tensors)
    features = drawn_features([420, 31, 777, 98])
    for rows, own in zip(features, heard(tower, features, rule), strict=True):
        check_close(own, expected(network, rows, rule))


@pytest.mark.parametrize("rule", LENGTH_RULES)
@pytest.mark.parametrize("length", [0, 7, 98, 150])
def test_recorded_stages_equal_pytorch(small, rule: str, length: int) -> None:
    network, tower = small
    features = drawn_features([180, length, 33])
    wanted, found = Recorder(StageFilter()), Recorder(StageFilter())
    embeddings = heard(tower, features, rule, [None, found, None])
    check_close(embeddings[1], expected(network, features[1], rule, wanted))
    assert list(found.stages) == list(wanted.stages)
    for stage, value in wanted.stages.items():
        assert found.stages[stage].dtype == np.float32
        check_close(found.stages[stage], value)


def test_each_recorder_gets_only_its_requested_stages_of_its_own_segment(small) -> None:
    _, tower = small
    features = drawn_features([50, 120])
    first, second = Recorder(lambda stage: stage == "encoder.input"), Recorder(lambda stage: stage == "encoder.output")
    heard(tower, features, "release", [first, second])
    assert {stage: len(rows) for stage, rows in first.stages.items()} == {"encoder.input": encoder_frames(50)}
    assert {stage: len(rows) for stage, rows in second.stages.items()} == {"encoder.output": encoder_frames(120)}


def test_hooks_exist_only_while_recording(small) -> None:
    _, tower = small

    def hooks() -> int:
        return sum(len(module._forward_hooks) for module in tower.modules())

    seen = []
    handle = tower.encoder.register_forward_pre_hook(lambda *_: seen.append(hooks()))
    try:
        heard(tower, drawn_features([50]), "release")
        heard(tower, drawn_features([50]), "release", [None])
        heard(tower, drawn_features([50]), "release", [Recorder(StageFilter())])
    finally:
        handle.remove()
    assert seen[:2] == [0, 0] and seen[2] > 0
    assert hooks() == 0


def test_the_tower_is_float32_in_a_model_of_another_dtype(one_worker: None) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        tower = FireRedTower(SMALL, 24, 2)
    finally:
        torch.set_default_dtype(before)
    assert {value.dtype for value in [*tower.parameters(), *tower.buffers()]} == {torch.float32}


def test_unknown_weight_is_refused_by_name(small) -> None:
    _, tower = small
    with pytest.raises(ValueError, match=r"strange"):
        tower.load_weights([("encoder.strange.weight", torch.zeros(1))])
