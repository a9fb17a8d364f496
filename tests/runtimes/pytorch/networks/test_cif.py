"""Integrate-and-fire compared with its definition as a loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.families.sanm.paraformer import CifConfig
from workbench.runtimes.pytorch.networks.cif import CifPredictor, fire, integrate

CONFIG = CifConfig(12, 1, 1, 0.45, 1.0, 0.0)
WEIGHTS = st.lists(st.floats(0.0, 1.0, width=32), min_size=1, max_size=40)


def integrate_and_fire(hidden: np.ndarray, alphas: np.ndarray) -> np.ndarray:
    """Embeddings [tokens, width], in float64: a frame that completes a token shares itself with the next."""
    embeddings, value, embedding = [], 0.0, np.zeros(hidden.shape[1])
    for weight, frame in zip(alphas.astype(np.float64), hidden.astype(np.float64), strict=True):
        if value + weight < 1.0:
            value += weight
            embedding = embedding + weight * frame
            continue
        missing = 1.0 - value
        embeddings.append(embedding + missing * frame)
        value = weight - missing
        embedding = value * frame
    return np.array(embeddings).reshape(-1, hidden.shape[1])


@given(WEIGHTS)
def test_fire_equals_the_integrate_and_fire_loop(weights: list[float]) -> None:
    alphas = np.array(weights, dtype=np.float32)
    hidden = np.random.default_rng(len(weights)).standard_normal((len(weights), 3)).astype(np.float32)
    expected = integrate_and_fire(hidden, alphas)
    actual = fire(torch.from_numpy(hidden)[None], torch.from_numpy(alphas)[None], len(expected))[0].numpy()
    np.testing.assert_allclose(actual, expected, atol=2e-6)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_fire_in_float64_is_exact_in_that_type(weights: list[float]) -> None:
    alphas = np.array(weights)
    hidden = np.random.default_rng(len(weights)).standard_normal((len(weights), 3))
    expected = integrate_and_fire(hidden, alphas)
    actual = fire(torch.from_numpy(hidden)[None], torch.from_numpy(alphas)[None], len(expected))[0].numpy()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@given(WEIGHTS)
def test_each_token_has_weight_one_and_total_weight_is_preserved(weights: list[float]) -> None:
    alphas = torch.tensor([weights])
    total = math.fsum(alphas[0].tolist())
    tokens = math.floor(total) + 1
    shares = fire(torch.ones(1, len(weights), 1), alphas, tokens)[0, :, 0]
    assert shares.sum().item() == pytest.approx(total, abs=1e-4)
    assert shares[:-1].tolist() == pytest.approx([1.0] * (tokens - 1), abs=1e-4)


def test_fire_stays_exact_for_a_long_recording() -> None:
    draw = np.random.default_rng(0)
    hidden, alphas = draw.standard_normal((5000, 4)).astype(np.float32), draw.random(5000, dtype=np.float32)
    expected = integrate_and_fire(hidden, alphas)
    actual = fire(torch.from_numpy(hidden)[None], torch.from_numpy(alphas)[None], len(expected))[0].numpy()
    np.testing.assert_allclose(actual, expected, atol=2e-6)


def test_a_frame_on_a_boundary_is_shared() -> None:
    hidden = torch.tensor([[[1.0], [10.0], [100.0]]])
    embeddings = fire(hidden, torch.tensor([[0.75, 0.5, 0.75]]), 2)
    assert embeddings[0, :, 0].tolist() == pytest.approx([0.75 + 2.5, 2.5 + 75.0])


def test_the_running_sum_does_not_drift() -> None:
    weights = torch.full((1, 100_000), 0.1)
    exact = 0.1 * np.arange(1, 100_001)
    np.testing.assert_allclose(integrate(weights)[0].numpy(), exact, rtol=2e-8)  # float32 rounds 0.1


@pytest.mark.parametrize("residual", [False, True])
def test_alphas_follow_the_published_formula(residual: bool) -> None:
    """A full convolution, with FunASR's C++ runtime's residual or without one, then factor, threshold and ReLU."""
    torch.manual_seed(0)
    config = CifConfig(4, 1, 2, 0.45, smooth_factor=0.8, noise_threshold=0.3)
    predictor = CifPredictor(config).eval()
    encoded = torch.randn(1, 6, 4)
    with torch.no_grad():
        actual = predictor(encoded, residual=residual).alphas[0].numpy()
        with_other_residual = predictor(encoded, residual=not residual).alphas[0].numpy()
        weight, bias = predictor.cif_conv1d.weight.numpy(), predictor.cif_conv1d.bias.numpy()
        out, offset = predictor.cif_output.weight[0].numpy(), predictor.cif_output.bias.item()
    x = encoded[0].numpy()
    for t in range(6):
        local = bias.copy()
        for k in range(4):
            if 0 <= t - 1 + k < 6:
                local += weight[:, :, k] @ x[t - 1 + k]
        local += x[t] if residual else 0
        score = 1 / (1 + math.exp(-(np.maximum(local, 0) @ out + offset)))
        assert actual[t] == pytest.approx(max(0.8 * score - 0.3, 0.0), abs=1e-6)
    assert (
        actual[6] == with_other_residual[6] == pytest.approx(0.45) and np.abs(actual - with_other_residual).max() > 0.01
    )


def test_tail_threshold_completes_the_last_token() -> None:
    predictor = CifPredictor(CONFIG).eval()
    with torch.no_grad():
        for parameter in predictor.parameters():
            parameter.zero_()
        predictor.cif_output.bias.fill_(math.log(0.3 / 0.7))  # a weight of 0.3 per frame
        one_token = predictor(torch.ones(1, 5, 12))
        no_token = predictor(torch.ones(1, 1, 12))
    assert one_token.alphas[0].tolist() == pytest.approx([0.3] * 5 + [0.45])  # 1.95 in all
    assert one_token.counts.tolist() == [1] and one_token.embeddings.shape == (1, 1, 12)
    assert no_token.counts.tolist() == [0] and no_token.embeddings.shape == (1, 0, 12)


def test_nan_alphas_raise_one_line_error() -> None:
    with torch.no_grad(), pytest.raises(BadInput, match="finds nan tokens: values overflow in the network"):
        CifPredictor(CONFIG).eval()(torch.full((1, 5, 12), float("nan")))


def test_batched_rows_equal_single_rows() -> None:
    torch.manual_seed(3)
    predictor = CifPredictor(CONFIG).eval()
    lengths = torch.tensor([9, 20, 3])
    encoded = torch.randn(3, 20, 12)
    for row, length in enumerate(lengths.tolist()):
        encoded[row, length:] = 0.0  # the convolution pads a single row with zeros
    with torch.no_grad():
        batched = predictor(encoded, lengths)
        for row, length in enumerate(lengths.tolist()):
            single = predictor(encoded[row : row + 1, :length])
            count = int(single.counts[0])
            assert int(batched.counts[row]) == count
            np.testing.assert_allclose(batched.alphas[row, : length + 1], single.alphas[0], atol=1e-6)
            assert not batched.alphas[row, length + 1 :].any()
            np.testing.assert_allclose(batched.embeddings[row, :count], single.embeddings[0], atol=1e-5)


@pytest.mark.parametrize("blstm", [False, True])
@pytest.mark.parametrize("after_conv", [False, True])
def test_upsampled_alphas_sum_to_the_number_of_tokens(blstm: bool, after_conv: bool) -> None:
    torch.manual_seed(4)
    config = CifConfig(8, 1, 1, 0.45, 1.0, 0.0, 3, blstm, after_conv, 0.25, 0.01)
    predictor = CifPredictor(config).eval()
    with torch.no_grad():
        fine = predictor.fine_alphas(torch.randn(1, 10, 8), 4)
        exact = predictor.double().fine_alphas(torch.randn(1, 10, 8, dtype=torch.float64), 4)
    assert fine.shape == exact.shape == (30,) and exact.dtype == torch.float64
    assert float(fine.sum()) == pytest.approx(4.0, abs=1e-5)
    assert float(exact.sum()) == pytest.approx(4.0, abs=1e-14)
    assert (fine >= 0).all()
