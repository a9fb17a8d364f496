"""Fun-ASR-Nano's tower on vLLM's layers compared with the PyTorch runtime's network in float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.runtimes.vllm.models.worker import finish_loading, worker  # noqa: E402
from tests.support.tiny_checkpoints import drawn_tensors  # noqa: E402
from workbench.families.sanm.encoder import SanmConfig  # noqa: E402
from workbench.families.speech_llm.funasr_nano import AdaptorConfig, audio_tokens, read_funasr_nano  # noqa: E402
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into, read_state_dict  # noqa: E402
from workbench.runtimes.pytorch.funasr_nano import split_language  # noqa: E402
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder  # noqa: E402
from workbench.runtimes.pytorch.tap import tap_into  # noqa: E402
from workbench.runtimes.vllm.models.funasr_nano_tower import NanoTower  # noqa: E402
from workbench.trace.recorder import Recorder  # noqa: E402
from workbench.trace.trace import StageFilter  # noqa: E402

DEMO = Path(__file__).resolve().parents[4] / "assets" / "demo-funasr-nano"
TOLERANCE = 1e-5  # of the largest value of a stage
TINY = SanmConfig(20, 16, 2, 24, 2, 1, 5, 0, 1e-5)
# The published sizes, with few of the 70 blocks.
REAL = SanmConfig(560, 512, 4, 2048, 2, 1, 11, 0, 1e-5)
REAL_ADAPTOR = AdaptorConfig(1, True, 512, 2048, 1024, 2, 8)


@pytest.fixture(scope="module", autouse=True)
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with worker(tmp_path_factory.mktemp("worker") / "meeting"):
        yield


def pair(
    encoder: SanmConfig, adaptor: AdaptorConfig, tensors: Mapping[str, torch.Tensor] | None = None
) -> tuple[NanoEncoder, NanoTower]:
    """The PyTorch runtime's network and the tower, with the same weights."""
    tensors = tensors or drawn_tensors(NanoEncoder(encoder, adaptor), 3)
    network = build(NanoEncoder, encoder, adaptor)
    load_into(network, tensors, "the test")
    tower = NanoTower(encoder, adaptor).eval()
    assert tower.load_weights(tensors.items()) == set(dict(tower.named_parameters()))
    finish_loading(tower)
    return network, tower


def random_features(lengths: Sequence[int], width: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    return [torch.randn(length, width, generator=draw) for length in lengths]


@torch.inference_mode()
def assert_equal_stages(network: NanoEncoder, tower: NanoTower, lengths: Sequence[int]) -> None:
    """Compare every stage of every segment, batched in the tower and alone in the network."""
    features = random_features(lengths, network.audio_encoder.config.input_size)
    recorders = [Recorder(StageFilter()) for _ in lengths]
    embeddings = tower(features, lengths, recorders)
    for rows, recorder, actual in zip(features, recorders, embeddings, strict=True):
        expected = Recorder(StageFilter())
        speech, counts = network(rows[None], torch.tensor([len(rows)]), tap_into(expected))
        assert actual.dtype == torch.float32
        assert_close(actual.numpy(), speech[0, : int(counts[0])].numpy(), "embeddings")
        assert list(recorder.stages) == list(expected.stages)
        for stage, value in expected.stages.items():
            assert_close(recorder.stages[stage], value, stage)


def assert_close(actual: np.ndarray, expected: np.ndarray, stage: str) -> None:
    assert actual.shape == expected.shape and actual.dtype == np.float32, stage
    assert np.abs(actual - expected).max() <= TOLERANCE * max(np.abs(expected).max(), 1), stage


@pytest.mark.parametrize(
    "encoder, adaptor",
    [
        (TINY, AdaptorConfig(1, True, 16, 24, 32, 2, 8)),
        (replace(TINY, sanm_shift=2, tp_blocks=0), AdaptorConfig(3, True, 16, 24, 32, 1, 4)),
        (replace(TINY, kernel_size=4), AdaptorConfig(8, True, 16, 24, 32, 0, 1)),
        (replace(TINY, attention_heads=1, input_size=16), AdaptorConfig(2, True, 16, 8, 32, 2, 2)),
    ],
)
def test_towers_of_various_sizes_equal_pytorch(encoder: SanmConfig, adaptor: AdaptorConfig) -> None:
    assert_equal_stages(*pair(encoder, adaptor), [17, 9, 1, 20, 17, 2])


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6), rate=st.sampled_from([1, 2, 3, 8]))
def test_segment_output_does_not_depend_on_other_segments_in_the_batch(lengths: list[int], rate: int) -> None:
    assert_equal_stages(*pair(TINY, AdaptorConfig(rate, rate > 1, 16, 24, 32, 1, 4)), lengths)


def test_tower_of_published_size_equals_pytorch() -> None:
    assert_equal_stages(*pair(REAL, REAL_ADAPTOR), [167, 150, 43])


def test_tower_of_the_demo_equals_pytorch() -> None:
    model = read_funasr_nano(DEMO)
    hearing, _ = split_language(read_state_dict(model.checkpoint.weights))
    assert_equal_stages(*pair(model.encoder, model.adaptor, hearing), [60, 58, 21])


@torch.inference_mode()
def test_stages_are_recorded_only_for_segments_with_a_recorder() -> None:
    adaptor = AdaptorConfig(2, True, 16, 24, 32, 1, 4)
    _, tower = pair(TINY, adaptor)
    recorder = Recorder(lambda stage: stage in ("encoder.output", "adaptor.layers.0", "adaptor.output"))
    features = random_features([20, 19], 20)
    plain = tower(features, [20, 19], None)
    with_recorder = tower(features, [20, 19], [None, recorder])
    assert all(torch.equal(*outputs) for outputs in zip(plain, with_recorder, strict=True))
    assert {stage: len(value) for stage, value in recorder.stages.items()} == {
        "encoder.output": 19,
        "adaptor.layers.0": 10,
        "adaptor.output": audio_tokens(19, adaptor),
    }


def test_tower_stays_float32_in_a_bfloat16_model() -> None:
    adaptor = AdaptorConfig(1, True, 16, 24, 32, 1, 4)
    tensors = {name: value.bfloat16() for name, value in drawn_tensors(NanoEncoder(TINY, adaptor), 3).items()}
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # as vLLM does while it makes a model
    try:
        tower = NanoTower(TINY, adaptor)
    finally:
        torch.set_default_dtype(default)
    tower.load_weights(tensors.items())
    assert {parameter.dtype for parameter in tower.parameters()} == {torch.float32}


def test_unknown_tensor_is_refused_by_name() -> None:
    tower = NanoTower(TINY, AdaptorConfig(1, True, 16, 24, 32, 1, 4))
    with pytest.raises(ValueError, match=r"the tower has no tensor audio_encoder\.other"):
        tower.load_weights([("audio_encoder.other", torch.zeros(1))])
