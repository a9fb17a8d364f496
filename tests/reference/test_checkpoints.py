"""Generated checkpoints have the published dimensions, and their random weights give varied output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.reference.checkpoints import (
    SMALL_PARAFORMER,
    SMALL_SENSEVOICE,
    ParaformerSize,
    SenseVoiceSize,
    write_paraformer,
    write_sensevoice,
)
from tests.reference.speech import speech
from workbench.families.sanm.decoder import DecoderConfig
from workbench.families.sanm.encoder import SanmConfig
from workbench.families.sanm.paraformer import CifConfig, ParaformerOptions, read_paraformer
from workbench.families.sanm.sensevoice import SenseVoiceOptions, read_sensevoice
from workbench.runtimes.pytorch.checkpoints.weights import build
from workbench.runtimes.pytorch.paraformer import ParaformerNetwork, open_paraformer
from workbench.runtimes.pytorch.sensevoice import SenseVoiceNetwork, open_sensevoice
from workbench.trace.trace import StageFilter


def count_values(network: torch.nn.Module) -> tuple[int, int]:
    """Returns the number of tensors, and of values in them."""
    state = network.state_dict()
    return len(state), sum(value.numel() for value in state.values())


def test_full_size_sensevoice_has_the_published_tensor_and_parameter_counts() -> None:
    size = SenseVoiceSize()
    encoder = SanmConfig(560, 512, 4, 2048, size.encoder.blocks, size.tp_blocks, 11, 0, 1e-5)
    assert count_values(build(SenseVoiceNetwork, encoder, size.vocabulary)) == (917, 233_999_167)


@pytest.mark.parametrize(("fine", "expected"), [({}, (956, 220_084_533)), ({"upsample": 3}, (968, 225_074_998))])
def test_full_size_paraformer_has_the_published_tensor_and_parameter_counts(
    fine: dict[str, int], expected: tuple[int, int]
) -> None:
    size = ParaformerSize()
    encoder = SanmConfig(560, 512, 4, 2048, size.encoder.blocks, 0, 11, 0, 1e-12)
    predictor = CifConfig(512, 1, 1, 0.45, 1.0, 0.0, blstm=bool(fine), **fine)
    decoder = DecoderConfig(4, 2048, size.decoder_blocks, size.decoder_attending, 11, 0)
    tensors, numbers = count_values(build(ParaformerNetwork, encoder, predictor, decoder, size.vocabulary))
    assert (tensors + 1, numbers + size.vocabulary * 512) == expected  # and the embedding that only training uses


def test_small_random_sensevoice_gives_varied_output(tmp_path: Path) -> None:
    model = open_sensevoice(read_sensevoice(write_sensevoice(tmp_path / "it", SMALL_SENSEVOICE)), torch.device("cpu"))
    trace = model.trace(speech(30), SenseVoiceOptions(), StageFilter("logits,encoder.output"))
    best = trace["logits"].argmax(axis=1)
    assert len(np.unique(best)) > 20
    assert 0 < (best == 0).mean() < 0.8
    rows = trace["encoder.output"] / np.linalg.norm(trace["encoder.output"], axis=1, keepdims=True)
    assert (rows @ rows.T).mean() < 0.9  # the frames are not all alike


@pytest.mark.parametrize("predictor", ["CifPredictorV2", "CifPredictorV3"])
def test_small_random_paraformer_gives_a_plausible_token_rate(predictor: str, tmp_path: Path) -> None:
    directory = write_paraformer(tmp_path / "it", SMALL_PARAFORMER, predictor=predictor)
    model = open_paraformer(read_paraformer(directory), torch.device("cpu"))
    trace = model.trace(speech(30), ParaformerOptions(), StageFilter("predictor.alphas,tokens"))
    assert 0.1 < len(trace["tokens"]) / len(trace["predictor.alphas"]) < 0.4  # two to seven tokens a second
    assert len(np.unique(trace["tokens"])) > 10
    assert trace["predictor.alphas"].std() > 0.05


def test_checkpoint_weights_are_determined_by_the_seed(tmp_path: Path) -> None:
    first, repeated, other = (
        torch.load(write_paraformer(tmp_path / name, SMALL_PARAFORMER, seed) / "model.pt", weights_only=True)
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert all(torch.equal(first[name], repeated[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if "weight" in name)
