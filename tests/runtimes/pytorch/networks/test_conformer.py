"""The Conformer encoder against a slow reference, with checks of padding, lengths and the stacking adaptor."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.support.tiny_checkpoints import drawn_tensors
from workbench.families.speech_llm.conformer import ConformerConfig, encoder_frames, valid_frames
from workbench.runtimes.pytorch.networks.conformer import (
    QUERIES,
    ConformerEncoder,
    RelativeAttention,
    StackingAdaptor,
    _position_scores,
    relative_positions,
)

CONFIG = ConformerConfig(idim=80, n_layers=2, n_head=2, d_model=8, kernel_size=5, pe_maxlen=5000)


def encoder() -> ConformerEncoder:
    network = ConformerEncoder(CONFIG)
    network.load_state_dict(drawn_tensors(network, 1))
    return network.eval().requires_grad_(False)


def features(frames: int, seed: int = 1, batch: int = 1) -> Tensor:
    return torch.randn(batch, frames, 80, generator=torch.Generator().manual_seed(seed))


# The definition, one number at a time ----------------------------------------------------------------------------


class ReferenceEncoder:
    """The encoder of the paper in float64 NumPy, with the weights of a network."""

    def __init__(self, network: ConformerEncoder):
        self.weights = {name: value.double().numpy() for name, value in network.state_dict().items()}

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        weight = self.weights[f"{name}.weight"]
        return x @ weight.reshape(len(weight), -1).T + self.weights.get(f"{name}.bias", 0.0)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def subsample(self, sound: np.ndarray) -> np.ndarray:
        image = np.concatenate([sound, np.zeros((6, 80))])[None]
        for name in ("conv.0", "conv.2"):
            kernel, bias = (self.weights[f"input_preprocessor.{name}.{part}"] for part in ("weight", "bias"))
            heights, widths = ((size - 3) // 2 + 1 for size in image.shape[1:])
            next_image = np.empty((len(kernel), heights, widths))
            for y in range(heights):
                for x in range(widths):
                    patch = image[:, 2 * y : 2 * y + 3, 2 * x : 2 * x + 3]
                    next_image[:, y, x] = (kernel * patch).sum(axis=(1, 2, 3)) + bias
            image = np.maximum(next_image, 0)
        return self.linear("input_preprocessor.out", image.transpose(1, 0, 2).reshape(image.shape[1], -1))

    def feed_forward(self, name: str, x: np.ndarray) -> np.ndarray:
        inner = self.linear(f"{name}.net.1", self.norm(f"{name}.net.0", x))
        return x + 0.5 * self.linear(f"{name}.net.4", inner / (1 + np.exp(-inner)))

    def attention(self, name: str, x: np.ndarray, valid: int) -> np.ndarray:
        frames, size = x.shape
        heads = CONFIG.n_head
        width = size // heads
        q, k, v = (
            self.linear(f"{name}.w_{c}s", self.norm(f"{name}.layer_norm_{c}", x)).reshape(frames, heads, width)
            for c in "qkv"
        )
        u, w = (self.weights[f"{name}.pos_bias_{letter}"] for letter in "uv")
        context = np.zeros((frames, heads, width))
        for head in range(heads):
            for i in range(frames):
                scores = np.empty(valid)
                for j in range(valid):
                    p = self.linear(f"{name}.linear_pos", sinusoid(i - j, size)).reshape(heads, width)[head]
                    score = (q[i, head] + u[head]) @ k[j, head] + (q[i, head] + w[head]) @ p
                    scores[j] = score / math.sqrt(width)
                weights = np.exp(scores - scores.max())
                context[i, head] = (weights / weights.sum()) @ v[:valid, head]
        return x + self.linear(f"{name}.fc", context.reshape(frames, size))

    def convolution(self, name: str, x: np.ndarray, valid: int) -> np.ndarray:
        counts = (np.arange(len(x)) < valid)[:, None]
        first, second = np.split(
            self.linear(f"{name}.pointwise_conv1", self.norm(f"{name}.pre_layer_norm", x) * counts), 2, 1
        )
        gated = first / (1 + np.exp(-second))
        kernel = self.weights[f"{name}.depthwise_conv.weight"][:, 0]
        half_kernel = kernel.shape[1] // 2
        padded = np.pad(gated, ((half_kernel, half_kernel), (0, 0)))
        convolved = np.stack([(padded[t : t + kernel.shape[1]] * kernel.T).sum(axis=0) for t in range(len(x))])
        inner = self.norm(f"{name}.batch_norm", convolved)
        return x + self.linear(f"{name}.pointwise_conv2", inner / (1 + np.exp(-inner))) * counts

    def __call__(self, sound: np.ndarray, valid: int) -> np.ndarray:
        x = self.subsample(sound)
        for number in range(CONFIG.n_layers):
            block = f"layer_stack.{number}"
            x = self.feed_forward(f"{block}.ffn1", x)
            x = self.attention(f"{block}.mhsa", x, valid)
            x = self.convolution(f"{block}.conv", x, valid)
            x = self.norm(f"{block}.layer_norm", self.feed_forward(f"{block}.ffn2", x))
        return x


def sinusoid(distance: int, size: int) -> np.ndarray:
    row = np.empty(size)
    for channel in range(0, size, 2):
        angle = distance / 10000 ** (channel / size)
        row[channel], row[channel + 1] = math.sin(angle), math.cos(angle)
    return row


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-5), (torch.float64, 1e-13)])
@pytest.mark.parametrize("rule", ["release", "head"])
@pytest.mark.parametrize("frames", [9, 23, 41])
def test_encoder_equals_the_reference_implementation(frames: int, rule: str, dtype: torch.dtype, error: float) -> None:
    network, sound = encoder().to(dtype), features(frames).to(dtype)
    valid = max(valid_frames(frames, rule), 1)
    actual = network(sound, torch.tensor([valid]))[0].numpy()
    expected = ReferenceEncoder(network)(sound[0].double().numpy(), valid)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=error * np.abs(expected).max())


# Lengths and padding ----------------------------------------------------------------------------------------------


@given(st.integers(1, 3000))
def test_valid_frames_follow_the_release_and_head_rules(frames: int) -> None:
    mask = np.arange(frames + 6) < frames  # the first release slices a mask instead
    assert valid_frames(frames, "release") == mask[:-2:2][:-2:2].sum() == encoder_frames(frames)
    assert encoder_frames(frames) - valid_frames(frames, "head") in (1, 2)


@settings(max_examples=30)
@given(st.integers(1, 90))
def test_encoder_output_length_equals_encoder_frames(frames: int) -> None:
    assert encoder()(features(frames)).shape == (1, encoder_frames(frames), CONFIG.d_model)


@settings(max_examples=15)
@given(st.lists(st.integers(1, 120), min_size=2, max_size=4), st.sampled_from(["release", "head"]))
def test_padding_does_not_leak(lengths: list[int], rule: str) -> None:
    network = encoder()
    sounds = [features(length, seed) for seed, length in enumerate(lengths)]
    padded = torch.zeros(len(lengths), max(lengths), 80)
    for row, sound in zip(padded, sounds, strict=True):
        row[: sound.shape[1]] = sound[0]
    valid = torch.tensor([max(valid_frames(length, rule), 1) for length in lengths])
    batched = network(padded, valid)
    for row, (sound, length) in enumerate(zip(sounds, lengths, strict=True)):
        single = network(sound, valid[row : row + 1])[0]
        torch.testing.assert_close(batched[row, : encoder_frames(length)], single, rtol=1e-4, atol=1e-4)


def test_frames_beyond_the_valid_length_do_not_change_valid_frames() -> None:
    """Frames after the valid length change no earlier encoder frame, even if they are not silent."""
    network, valid = encoder(), torch.tensor([10])
    sound = features(80)
    changed = sound.clone()
    changed[:, 46:] = features(34, seed=2)  # encoder frame 9 ends with feature frame 42
    torch.testing.assert_close(network(changed, valid)[:, :10], network(sound, valid)[:, :10])
    assert not torch.allclose(network(changed)[:, :10], network(sound)[:, :10], atol=1e-3)


def test_full_valid_length_equals_no_mask() -> None:
    network, sound = encoder(), features(50)
    torch.testing.assert_close(network(sound, torch.tensor([13])), network(sound))


@given(st.integers(1, 60), st.sampled_from([2, 8, 32]))
@settings(max_examples=25)
def test_positions_run_from_the_furthest_ahead_to_the_furthest_behind(frames: int, size: int) -> None:
    table = relative_positions(frames, size, torch.zeros(())).numpy()
    expected = [sinusoid(distance, size) for distance in range(frames - 1, -frames, -1)]
    np.testing.assert_allclose(table, expected, atol=1e-5)


def test_attention_without_a_mask_sees_every_key() -> None:
    attention = RelativeAttention(8, 2, 0.0).eval()
    x = torch.randn(1, 5, 8)
    positions = relative_positions(5, 8, x)
    plain = attention(x, positions, None, lambda stage, value: value, "s")
    masked = attention(x, positions, torch.ones(1, 5, dtype=torch.bool), lambda stage, value: value, "s")
    torch.testing.assert_close(plain, masked)


@given(st.sampled_from([1, 2, QUERIES - 1, QUERIES, QUERIES + 1, 2 * QUERIES + 3]), st.integers(0, 3))
def test_position_scores_meet_each_key_with_its_distance(frames: int, hidden: int) -> None:
    q, p = torch.randn(2, 3, frames, 4), torch.randn(1, 3, 2 * frames - 1, 4)
    keys = torch.arange(frames).repeat(2, 1) < torch.tensor([[frames], [max(frames - hidden, 1)]])
    scores = _position_scores(q, p, keys)
    places = frames - 1 - torch.arange(frames)[:, None] + torch.arange(frames)  # the first position is T - 1 behind
    expected = (q[:, :, :, None] * p[:, :, places]).sum(-1).masked_fill(~keys[:, None, None], -torch.inf)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)


def test_gradients_of_position_scores_equal_those_of_the_definition() -> None:
    frames = QUERIES + 5
    q, p = (torch.randn(1, 2, rows, 3, dtype=torch.float64, requires_grad=True) for rows in (frames, 2 * frames - 1))
    places = frames - 1 - torch.arange(frames)[:, None] + torch.arange(frames)
    weights = torch.randn(1, 2, frames, frames, dtype=torch.float64)
    found = torch.autograd.grad((_position_scores(q, p, None) * weights).sum(), (q, p))
    expected = torch.autograd.grad(((q[:, :, :, None] * p[:, :, places]).sum(-1) * weights).sum(), (q, p))
    torch.testing.assert_close(found, expected)


# The adapter ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 11), st.integers(1, 4))
def test_adaptor_maps_stacked_frames_and_drops_an_incomplete_stack(frames: int, rate: int) -> None:
    adaptor = StackingAdaptor(6, 10, rate).eval()
    encoded = torch.randn(2, frames, 6)
    output = adaptor(encoded)
    assert output.shape == (2, frames // rate, 10)
    for index in range(frames // rate):
        stack = torch.cat([encoded[:, rate * index + part] for part in range(rate)], dim=1)
        torch.testing.assert_close(output[:, index], adaptor.linear2(torch.relu(adaptor.linear1(stack))))
