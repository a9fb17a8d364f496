"""The CIF predictor's parts against their definitions: convolutions, frame weights and the upsampled head."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tests.support.gguf_parts import write
from workbench.families.sanm.paraformer import CifConfig
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.networks import cif
from workbench.runtimes.pytorch.networks.cif import CifPredictor


def predictor_of(config: CifConfig, path: Path) -> tuple[CifPredictor, GraphRunner]:
    """A predictor with random weights on PyTorch, and the engine of a file that has them."""
    torch.manual_seed(config.width)
    predictor = CifPredictor(config).eval()
    tensors = {name: each.numpy() for name, each in predictor.state_dict().items()}
    write(path, lambda writer: [writer.add_tensor(name, each) for name, each in tensors.items()])
    return predictor, GraphRunner(read_gguf(path), threads=1)


def random_array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> GraphRunner:
    return predictor_of(CifConfig(4, 1, 1, 0.45, 1.0, 0.0), tmp_path_factory.mktemp("cif") / "it.gguf")[1]


SMALL = st.integers(1, 20)


@settings(max_examples=40)
@given(frames=st.integers(1, 30), width=SMALL, out=SMALL, left=st.integers(0, 4), right=st.integers(0, 4))
def test_convolution_equals_pytorch(
    engine: GraphRunner, frames: int, width: int, out: int, left: int, right: int
) -> None:
    x, kernel = random_array(frames, width), random_array(out, width, left + right + 1, seed=1)
    output = engine.run(lambda g: {"it": g.convolution(g.input(x), g.input(kernel), left, right)})["it"]
    padded = F.pad(torch.from_numpy(x).T[None], (left, right))
    np.testing.assert_allclose(output, F.conv1d(padded, torch.from_numpy(kernel))[0].T, atol=1e-4)


@pytest.mark.parametrize("times", [1, 2, 3, 5])
@pytest.mark.parametrize("frames", [1, 2, 17])
def test_upsampling_equals_the_transposed_convolution_of_pytorch(tmp_path: Path, times: int, frames: int) -> None:
    config = CifConfig(6, 1, 1, 0.45, 1.0, 0.0, times, False, False)
    predictor, engine = predictor_of(config, tmp_path / "it.gguf")
    x = random_array(frames, 6)
    output = engine.run(lambda g: cif.fine_parts(g, g.input(x), g.scope, config))["frames"]
    with torch.no_grad():
        expected = predictor.upsample_cnn(torch.from_numpy(x).T[None])[0].T
    assert output.shape == (frames * times, 6)
    np.testing.assert_allclose(output, expected, atol=1e-5)


@pytest.mark.parametrize("residual", [False, True])
def test_weights_follow_the_published_formula(tmp_path: Path, residual: bool) -> None:
    """A full convolution, with FunASR's C++ runtime's residual or without one, then factor, threshold and ReLU."""
    config = CifConfig(5, 1, 2, 0.45, smooth_factor=0.8, noise_threshold=0.3)
    predictor, engine = predictor_of(config, tmp_path / "it.gguf")
    x = random_array(7, 5)

    def weights(residual: bool) -> np.ndarray:
        scores = engine.run(lambda g: {"it": cif.scores(g, g.input(x), g.scope, config, residual)})["it"]
        return cif.weights_of(scores, config)

    alphas = weights(residual)
    kernel, bias = predictor.cif_conv1d.weight.detach().numpy(), predictor.cif_conv1d.bias.detach().numpy()
    out, offset = predictor.cif_output.weight[0].detach().numpy(), predictor.cif_output.bias.item()
    for t in range(7):
        local = bias + (x[t] if residual else 0)
        for k in range(4):
            if 0 <= t - 1 + k < 7:
                local = local + kernel[:, :, k] @ x[t - 1 + k]
        score = 1 / (1 + math.exp(-(np.maximum(local, 0) @ out + offset)))
        assert alphas[t] == pytest.approx(max(0.8 * score - 0.3, 0.0), abs=1e-6)
    assert alphas.dtype == np.float32 and alphas.shape == (8,) and alphas[7] == np.float32(0.45)
    assert np.abs(alphas - weights(not residual)).max() > 0.01
    with torch.no_grad():
        expected = predictor(torch.from_numpy(x)[None], residual=residual).alphas[0]
    np.testing.assert_allclose(alphas, expected, atol=1e-6)


@pytest.mark.parametrize("blstm", [False, True])
@pytest.mark.parametrize("after_conv", [False, True])
@pytest.mark.parametrize("frames", [1, 23])
def test_upsampled_cif_weights_equal_pytorch(tmp_path: Path, blstm: bool, after_conv: bool, frames: int) -> None:
    config = CifConfig(7, 1, 1, 0.45, 1.0, 0.0, 3, blstm, after_conv, 0.25, 0.01)
    predictor, engine = predictor_of(config, tmp_path / "it.gguf")
    x = random_array(frames, 7)
    parts = engine.run(lambda g: cif.fine_parts(g, g.input(x), g.scope, config))
    alphas = cif.FineWeights(engine.weights.file, "", config)(parts, 4)
    with torch.no_grad():
        expected = predictor.fine_alphas(torch.from_numpy(x)[None], 4)
    assert alphas.shape == (3 * frames,) and alphas.sum() == pytest.approx(4.0, abs=1e-5)
    np.testing.assert_allclose(alphas, expected, atol=1e-5)
