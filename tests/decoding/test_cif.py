"""CIF on numpy arrays against the batched PyTorch version, which is itself tested against the defining loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.decoding.cif import fire, peaks
from workbench.runtimes.pytorch.networks import cif

WEIGHTS = st.lists(st.floats(0.0, 1.0, width=32), min_size=1, max_size=40)


def fire_both(hidden: np.ndarray, alphas: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the embeddings [tokens, width] of `fire` and those of PyTorch."""
    expected = cif.fire(torch.from_numpy(hidden)[None], torch.from_numpy(alphas)[None], tokens)
    return fire(hidden, alphas, tokens), expected[0].numpy()


@given(WEIGHTS, st.integers(0, 2))
def test_cif_embeddings_equal_those_of_pytorch(weights: list[float], more: int) -> None:
    """Also for tokens that the weights do not complete."""
    alphas = np.array(weights, dtype=np.float32)
    hidden = np.random.default_rng(len(weights)).standard_normal((len(weights), 3)).astype(np.float32)
    embeddings, expected = fire_both(hidden, alphas, math.floor(alphas.sum(dtype=np.float64)) + more)
    assert embeddings.dtype == np.float32 and embeddings.shape == expected.shape
    np.testing.assert_allclose(embeddings, expected, atol=2e-6)


def test_cif_embeddings_of_a_long_recording_equal_those_of_pytorch() -> None:
    draw = np.random.default_rng(0)
    hidden, alphas = draw.standard_normal((5000, 4)).astype(np.float32), draw.random(5000, dtype=np.float32)
    embeddings, expected = fire_both(hidden, alphas, math.floor(alphas.sum(dtype=np.float64)))
    np.testing.assert_allclose(embeddings, expected, atol=2e-6)


def test_cif_frame_on_a_token_boundary_is_split_between_both_tokens() -> None:
    hidden = np.array([[1.0], [10.0], [100.0]], dtype=np.float32)
    assert fire(hidden, np.array([0.75, 0.5, 0.75]), 2)[:, 0].tolist() == pytest.approx([0.75 + 2.5, 2.5 + 75.0])


@given(WEIGHTS, st.sampled_from([1.0, 0.9999]))
def test_cif_peaks_are_the_running_sum_minus_the_fired_threshold(weights: list[float], threshold: float) -> None:
    alphas = np.array(weights, dtype=np.float32)
    running_sums = peaks(alphas, threshold).tolist()
    value = 0.0
    for weight, peak in zip(alphas.tolist(), running_sums, strict=True):
        value += weight
        assert peak == pytest.approx(value, abs=1e-6)
        value -= threshold if value >= threshold else 0.0
    fired = sum(peak >= threshold for peak in running_sums)
    assert fired == pytest.approx(math.fsum(alphas.tolist()) / threshold, abs=1)
