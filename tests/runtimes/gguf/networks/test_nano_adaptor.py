"""Fun-ASR-Nano's encoder and adaptor on ggml against PyTorch: every stage, any length, frame stacking."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gguf_encoders import write_hearing
from tests.support.tiny_checkpoints import drawn_tensors
from workbench.core.errors import BadInput
from workbench.families.sanm.encoder import SanmConfig
from workbench.families.speech_llm.funasr_nano import AdaptorConfig, audio_tokens
from workbench.runtimes.gguf.funasr_nano import NanoGraph
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder
from workbench.runtimes.pytorch.tap import tap_into
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

INPUT = 22
ENCODER = SanmConfig(
    input_size=INPUT,
    output_size=18,
    attention_heads=3,
    linear_units=10,
    num_blocks=2,
    tp_blocks=1,
    kernel_size=5,
    sanm_shift=0,
    norm_eps=1e-5,
)


def adaptor(rate: int, low_rate: bool = False, layers: int = 2) -> AdaptorConfig:
    return AdaptorConfig(
        downsample_rate=rate,
        use_low_frame_rate=low_rate,
        encoder_dim=18,
        ffn_dim=14,
        llm_dim=20,
        n_layer=layers,
        attention_heads=2,
    )


CONFIGS = {
    "published": adaptor(1, low_rate=True),
    "every row": adaptor(1),
    "stacking": adaptor(3, low_rate=True),
    "stacking as many as the prompt takes": adaptor(8, low_rate=True),
    "without blocks": adaptor(1, layers=0),
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A graph on ggml and a network on PyTorch with the same weights, by the name of the adaptor."""
    folder, pairs_by_name = tmp_path_factory.mktemp("nano"), {}
    for number, (name, config) in enumerate(CONFIGS.items()):
        network = NanoEncoder(ENCODER, config)
        tensors = drawn_tensors(network, 5)
        network.load_state_dict(tensors)
        file = write_hearing(folder / f"{number}.gguf", tensors)
        graph = NanoGraph(file, model_of(config), threads=1)
        pairs_by_name[name] = graph, network.eval().requires_grad_(False)
    yield pairs_by_name
    for graph, _ in pairs_by_name.values():
        graph.close()


def model_of(config: AdaptorConfig) -> Any:
    """A model with the attributes that the graph reads."""
    return SimpleNamespace(encoder=ENCODER, adaptor=config)


def random_features(frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((frames, INPUT)).astype(np.float32)


@settings(max_examples=40)
@given(frames=st.integers(1, 90), name=st.sampled_from(sorted(CONFIGS)))
def test_every_encoder_and_adaptor_stage_equals_pytorch(pairs: Any, frames: int, name: str) -> None:
    graph, network = pairs[name]
    recorder, reference = Recorder(StageFilter()), Recorder(StageFilter())
    speech, counts = graph.embed_audio([random_features(frames)], recorder)
    network(torch.from_numpy(random_features(frames))[None], torch.tensor([frames]), tap_into(reference))
    assert counts.tolist() == [audio_tokens(frames, CONFIGS[name])]
    assert set(recorder.stages) == set(reference.stages)
    for stage, values in reference.stages.items():
        tolerance = 2e-4 * np.abs(values).max()
        np.testing.assert_allclose(recorder.stages[stage], values, rtol=1e-4, atol=tolerance, err_msg=stage)
    np.testing.assert_array_equal(speech[0], recorder.stages["adaptor.output"])


@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 60), min_size=2, max_size=4), name=st.sampled_from(sorted(CONFIGS)))
def test_batch_equals_single_recordings(pairs: Any, lengths: list[int], name: str) -> None:
    graph, network = pairs[name]
    inputs = [random_features(length, seed) for seed, length in enumerate(lengths)]
    speech, counts = graph.embed_audio(inputs, None)
    padded = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in inputs], batch_first=True)
    expected, expected_counts = network(padded, torch.tensor(lengths))
    assert counts.tolist() == expected_counts.tolist()
    assert speech.shape == expected.shape
    for row, (features, count) in enumerate(zip(inputs, counts, strict=True)):
        np.testing.assert_array_equal(speech[row, :count], graph.embed_audio([features], None)[0][0])
        assert not speech[row, count:].any()
        tolerance = 2e-4 * np.abs(expected.numpy()).max()
        np.testing.assert_allclose(speech[row, :count], expected[row, :count].numpy(), atol=tolerance)


@pytest.mark.parametrize(
    "name",
    [
        "audio_encoder.encoders.0.self_attn.linear_q_k_v.weight",
        "audio_adaptor.linear1.weight",
        "audio_adaptor.blocks.1.self_attn.linear_k.bias",
        "audio_adaptor.blocks.1.norm2.weight",
    ],
)
@pytest.mark.parametrize("change", ["missing", "misshapen"])
def test_missing_or_misshapen_weights_are_refused_at_opening(tmp_path: Path, name: str, change: str) -> None:
    config = CONFIGS["stacking"]
    tensors = drawn_tensors(NanoEncoder(ENCODER, config), 5)
    if change == "missing":
        del tensors[name]
    else:
        tensors[name] = torch.cat([tensors[name], tensors[name]])
    file = write_hearing(tmp_path / "bad.gguf", tensors)
    with pytest.raises(BadInput, match=name.replace(".", r"\.")):
        NanoGraph(file, model_of(config), threads=1)
