"""The Conformer encoder on ggml against PyTorch: all stages, any length, both length rules and unusual sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.support.gguf_encoders import cosine, write_hearing
from tests.support.tiny_checkpoints import drawn_tensors
from workbench.core.errors import BadInput
from workbench.families.speech_llm.conformer import ConformerConfig, encoder_frames, valid_frames
from workbench.runtimes.gguf.fireredasr import FireRedGraph
from workbench.runtimes.gguf.networks.conformer import QUERIES, encoder_input, relative_positions
from workbench.runtimes.pytorch.fireredasr import AudioEmbeddingNetwork
from workbench.runtimes.pytorch.networks import conformer
from workbench.runtimes.pytorch.tap import tap_into
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

HIDDEN = 6  # width of the language model
ODD = ConformerConfig(idim=80, n_layers=2, n_head=3, d_model=18, kernel_size=7, pe_maxlen=5000)
FULL = ConformerConfig(idim=80, n_layers=2, n_head=20, d_model=1280, kernel_size=33, pe_maxlen=5000)
RULES = ("release", "head")


def model_of(config: ConformerConfig, rate: int = 2, width: int = HIDDEN) -> Any:
    """A model with the attributes that the graph reads."""
    return SimpleNamespace(encoder=config, downsample_rate=rate, language=SimpleNamespace(hidden_size=width))


def tensors_of(config: ConformerConfig, rate: int = 2, width: int = HIDDEN) -> dict[str, Tensor]:
    return drawn_tensors(AudioEmbeddingNetwork(config, width, rate), seed=3)


def network_of(tensors: Mapping[str, Tensor], config: ConformerConfig, rate: int = 2, width: int = HIDDEN) -> Any:
    network = AudioEmbeddingNetwork(config, width, rate)
    network.load_state_dict(dict(tensors))
    return network.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A graph on ggml and a network on PyTorch with the same weights."""
    tensors = tensors_of(ODD)
    file = write_hearing(tmp_path_factory.mktemp("odd") / "odd.gguf", tensors)
    graph = FireRedGraph(file, model_of(ODD), threads=1)
    yield graph, network_of(tensors, ODD)
    graph.close()


@cache
def random_features(frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((frames, 80)).astype(np.float32)


def pytorch_stages(network: Any, features: np.ndarray, valid: int) -> dict[str, np.ndarray]:
    recorder = Recorder(StageFilter())
    network(torch.from_numpy(features)[None], torch.tensor([valid]), tap_into(recorder))
    return recorder.stages


def ggml_stages(graph: FireRedGraph, features: np.ndarray, valid: int) -> dict[str, np.ndarray]:
    recorder = Recorder(StageFilter())
    embeddings = graph.embed_audio([features], [valid], recorder)
    np.testing.assert_array_equal(embeddings[0], recorder.stages["adaptor.output"])
    return recorder.stages


def assert_same(pair: Any, frames: int, rule: str) -> None:
    graph, network = pair
    valid = max(valid_frames(frames, rule), 1)
    features = random_features(frames)
    stages, expected = ggml_stages(graph, features, valid), pytorch_stages(network, features, valid)
    assert list(stages) == list(expected)
    for stage, values in expected.items():
        np.testing.assert_allclose(stages[stage], values, rtol=1e-4, atol=2e-4 * np.abs(values).max(), err_msg=stage)


@settings(max_examples=40)
@given(frames=st.integers(8, 700), rule=st.sampled_from(RULES))
def test_every_conformer_stage_equals_pytorch_for_any_length(pair: Any, frames: int, rule: str) -> None:
    assert_same(pair, frames, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("frames", [8, 9, 4 * QUERIES - 1, 4 * QUERIES, 4 * QUERIES + 1, 8 * QUERIES + 1])
def test_query_blocks_give_the_stages_of_pytorch_at_block_borders(pair: Any, frames: int, rule: str) -> None:
    assert_same(pair, frames, rule)


@settings(max_examples=15)
@given(frames=st.integers(8, 200), valid=st.integers(1, 50))
def test_frames_beyond_the_valid_length_are_masked(pair: Any, frames: int, valid: int) -> None:
    graph, network = pair
    valid = min(valid, encoder_frames(frames))
    features = random_features(frames)
    stages, expected = ggml_stages(graph, features, valid), pytorch_stages(network, features, valid)
    np.testing.assert_allclose(
        stages["encoder.output"],
        expected["encoder.output"],
        rtol=1e-4,
        atol=2e-4 * np.abs(expected["encoder.output"]).max(),
    )
    assert not stages["encoder.layers.1.convolution"][valid:].any()


@settings(max_examples=10)
@given(lengths=st.lists(st.integers(8, 150), min_size=2, max_size=4), rule=st.sampled_from(RULES))
def test_batch_equals_single_recordings(pair: Any, lengths: list[int], rule: str) -> None:
    graph, network = pair
    inputs = [random_features(length, seed) for seed, length in enumerate(lengths)]
    valid = [max(valid_frames(length, rule), 1) for length in lengths]
    embeddings = graph.embed_audio(inputs, valid, None)
    padded = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in inputs], batch_first=True)
    expected = network(padded, torch.tensor(valid)).numpy()
    assert embeddings.shape == expected.shape
    for row, (length, features, count) in enumerate(zip(lengths, inputs, valid, strict=True)):
        tokens = encoder_frames(length) // 2
        np.testing.assert_array_equal(embeddings[row, :tokens], graph.embed_audio([features], [count], None)[0])
        assert not embeddings[row, tokens:].any()
        np.testing.assert_allclose(embeddings[row, :tokens], expected[row, :tokens], atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("rate", [1, 3])
def test_adaptor_stacks_frames_by_any_rate(tmp_path: Path, rate: int) -> None:
    tensors = tensors_of(ODD, rate)
    graph = FireRedGraph(write_hearing(tmp_path / "it.gguf", tensors), model_of(ODD, rate), threads=1)
    assert_same((graph, network_of(tensors, ODD, rate)), 47, "release")


@settings(max_examples=25)
@given(st.integers(1, 300), st.integers(1, 8))
def test_relative_positions_equal_pytorch_and_extend_beyond_its_table(frames: int, half: int) -> None:
    table = relative_positions(frames, 2 * frames + 3, 2 * half)
    expected = conformer.relative_positions(frames, 2 * half, torch.zeros(())).numpy()
    np.testing.assert_allclose(table[: 2 * frames - 1], expected, atol=1e-4)
    angle = -float(frames)
    np.testing.assert_allclose(table[2 * frames - 1, :2], [np.sin(angle), np.cos(angle)], atol=1e-4)


@settings(max_examples=25)
@given(st.integers(1, 3000), st.sampled_from(RULES))
def test_encoder_input_has_matching_frames_positions_and_mask(frames: int, rule: str) -> None:
    valid = max(valid_frames(frames, rule), 1)
    inputs = encoder_input(np.zeros((frames, 80), np.float32), valid, ODD)
    assert inputs.frames == encoder_frames(frames)
    assert len(inputs.positions) >= 2 * inputs.frames - 1
    assert (np.isfinite(inputs.mask).sum(axis=1) == valid).all()


NAMES = (
    "encoder.input_preprocessor.conv.2.weight",
    "encoder.input_preprocessor.out.bias",
    "encoder.layer_stack.1.mhsa.pos_bias_v",
    "encoder.layer_stack.1.mhsa.linear_pos.weight",
    "encoder.layer_stack.0.conv.depthwise_conv.weight",
    "encoder.layer_stack.0.conv.pointwise_conv1.weight",
    "encoder.layer_stack.0.ffn2.net.4.bias",
    "encoder_projector.linear2.weight",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", ["missing", "misshapen"])
def test_missing_or_misshapen_weights_are_refused_at_opening(tmp_path: Path, name: str, change: str) -> None:
    tensors = tensors_of(ODD)
    if change == "missing":
        del tensors[name]
    else:
        tensors[name] = torch.cat([tensors[name], tensors[name]])
    file = write_hearing(tmp_path / "bad.gguf", tensors)
    with pytest.raises(BadInput, match=name.replace(".", r"\.")):
        FireRedGraph(file, model_of(ODD), threads=1)


@pytest.fixture(scope="module")
def full() -> tuple[dict[str, Tensor], dict[str, np.ndarray]]:
    """Random weights of two of the 16 published blocks with the adapter to Qwen2-7B; PyTorch's stages for 30 s."""
    tensors = tensors_of(FULL, width=3584)
    network = network_of(tensors, FULL, width=3584)
    return tensors, pytorch_stages(network, random_features(2998), valid_frames(2998, "release"))


@pytest.mark.slow
@pytest.mark.parametrize(("quantization", "min_cosine"), [("f32", 0.999999), ("f16", 0.99999), ("q8_0", 0.999)])
def test_published_size_blocks_match_pytorch_on_30_seconds(
    full: Any, tmp_path: Path, quantization: str, min_cosine: float
) -> None:
    tensors, expected = full
    file = write_hearing(tmp_path / "full.gguf", tensors, quantization)
    graph = FireRedGraph(file, model_of(FULL, width=3584), threads=1)
    stages = ggml_stages(graph, random_features(2998), valid_frames(2998, "release"))
    graph.close()
    (tmp_path / "full.gguf").unlink()
    assert stages["adaptor.output"].shape == (375, 3584)
    dissimilar = {
        stage: similarity
        for stage, values in expected.items()
        if (similarity := cosine(stages[stage], values)) < min_cosine
    }
    assert not dissimilar
