"""The SAN-M encoder against a reference written with loops, and padding in batches."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from workbench.families.sanm.encoder import SanmConfig
from workbench.runtimes.pytorch.networks.sanm import FsmnMemory, SanmAttention, SanmEncoder, length_mask, sinusoid
from workbench.runtimes.pytorch.tap import no_tap

CONFIG = SanmConfig(
    input_size=20,
    output_size=16,
    attention_heads=4,
    linear_units=24,
    num_blocks=3,
    tp_blocks=2,
    kernel_size=5,
    sanm_shift=0,
    norm_eps=1e-5,
)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_positions_are_sines_then_cosines_of_positions_from_one(dtype: torch.dtype, error: float) -> None:
    actual = sinusoid(7, 10, torch.zeros(1, dtype=dtype)).numpy()
    for row in range(7):
        for column in range(5):
            angle = (row + 1) * 10000 ** (-column / 4)
            assert actual[row, column] == pytest.approx(math.sin(angle), abs=error)
            assert actual[row, 5 + column] == pytest.approx(math.cos(angle), abs=error)


def test_half_precision_position_encoding_is_rounded_from_float32() -> None:
    exact = sinusoid(300, 10, torch.zeros(1))
    assert torch.equal(sinusoid(300, 10, torch.zeros(1, dtype=torch.bfloat16)), exact.bfloat16())


def memory_by_loops(x: np.ndarray, weight: np.ndarray, left: int) -> np.ndarray:
    """y[t, d] = x[t, d] + sum over k of weight[d, k] x[t - left + k, d], frames outside being zero."""
    frames, width = x.shape
    y = np.zeros_like(x)
    for t in range(frames):
        for d in range(width):
            y[t, d] = x[t, d]
            for k in range(weight.shape[1]):
                if 0 <= t - left + k < frames:
                    y[t, d] += weight[d, k] * x[t - left + k, d]
    return y


@given(frames=st.integers(1, 9), kernel=st.integers(1, 6), shift=st.integers(0, 2))
def test_fsmn_memory_equals_a_convolution_written_with_loops(frames: int, kernel: int, shift: int) -> None:
    shift = min(shift, (kernel - 1) // 2)
    draw = torch.Generator().manual_seed(frames + 10 * kernel + 100 * shift)
    memory = FsmnMemory(3, kernel, shift)
    x = torch.randn(1, frames, 3, generator=draw)
    with torch.no_grad():
        memory.weight.normal_(generator=draw)
        actual = memory(x, None)[0].numpy()
    expected = memory_by_loops(x[0].numpy(), memory.weight.detach()[:, 0].numpy(), (kernel - 1) // 2 + shift)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_attention_is_softmax_over_heads_plus_memory() -> None:
    torch.manual_seed(0)
    attention = SanmAttention(6, 8, heads=2, kernel_size=3, shift=0).eval()
    x = torch.randn(1, 5, 6)
    with torch.no_grad():
        actual = attention(x, None, no_tap, "layer")[0].numpy()
        q, k, v = (part[0].numpy() for part in attention.linear_q_k_v(x).split(8, dim=-1))
        weight, bias = attention.linear_out.weight.numpy(), attention.linear_out.bias.numpy()
        kernel = attention.fsmn_block.weight[:, 0].numpy()
    context = np.zeros((5, 8))
    for head in (slice(0, 4), slice(4, 8)):
        for t in range(5):
            scores = np.array([q[t, head] @ k[s, head] / 2.0 for s in range(5)])  # the square root of 4 units per head
            weights = np.exp(scores) / np.exp(scores).sum()
            context[t, head] = sum(w * v[s, head] for s, w in enumerate(weights))
    np.testing.assert_allclose(actual, context @ weight.T + bias + memory_by_loops(v, kernel, 1), atol=1e-5)


def test_first_layer_has_no_residual_and_the_others_have() -> None:
    torch.manual_seed(0)
    encoder = SanmEncoder(CONFIG).eval()
    stages: dict[str, Tensor] = {}
    with torch.no_grad():
        for layer in [*encoder.encoders0, *encoder.encoders, *encoder.tp_encoders]:
            for part in (layer.self_attn.linear_out, layer.self_attn.linear_q_k_v, layer.feed_forward.w_2):
                part.weight.zero_()
                part.bias.zero_()
        encoder(torch.randn(1, 4, 20), tap=lambda stage, x: stages.setdefault(stage, x))
        assert not stages["encoder.layers.0"].any()
        stages.clear()
        encoder.encoders0[0].self_attn.linear_out.bias.fill_(2.0)
        encoder(torch.randn(1, 4, 20), tap=lambda stage, x: stages.setdefault(stage, x))
    assert (stages["encoder.layers.2"] == 2.0).all()


def test_layer_stages_are_numbered_through_both_blocks_and_end_with_the_output() -> None:
    encoder = SanmEncoder(CONFIG).eval()
    stages: list[str] = []

    def tap(stage: str, x: Tensor) -> Tensor:
        stages.append(stage)
        return x

    encoder(torch.randn(1, 4, 20), tap=tap)
    layers = [stage for stage in stages if stage.count(".") == 2]
    assert layers == [f"encoder.layers.{number}" for number in range(5)]
    assert stages[0] == "encoder.input" and stages[-1] == "encoder.output" and "encoder.after_norm" in stages


@pytest.mark.parametrize("shift", [0, 2])
@pytest.mark.parametrize("tp_blocks", [0, 2])
def test_batched_rows_equal_single_rows_whatever_the_padding_contains(shift: int, tp_blocks: int) -> None:
    torch.manual_seed(1)
    lengths = torch.tensor([7, 1, 12, 4])
    encoder = SanmEncoder(SanmConfig(20, 16, 4, 24, 3, tp_blocks, 5, shift, 1e-5)).eval()
    x = torch.randn(4, 12, 20)
    with torch.no_grad():
        zero_padded = encoder(x, lengths)
        x[~length_mask(lengths, 12)] = 1e3  # other values in the padding
        noise_padded = encoder(x, lengths)
        for row, length in enumerate(lengths.tolist()):
            single = encoder(x[row : row + 1, :length])[0]
            for actual in (zero_padded, noise_padded):
                np.testing.assert_allclose(actual[row, :length].numpy(), single.numpy(), atol=2e-6)


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(2)
    encoder = SanmEncoder(CONFIG, dropout=0.5)
    x = torch.randn(1, 6, 20)
    with torch.no_grad():
        assert not torch.equal(encoder(x), encoder(x))
        encoder.eval()
        assert torch.equal(encoder(x), encoder(x))
