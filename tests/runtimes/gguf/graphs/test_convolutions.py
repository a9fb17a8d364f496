"""Convolutions on ggml against PyTorch: any length, stride, dilation and padding, few channels and many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tests.runtimes.gguf.graphs.test_graph import random_array, write_file
from workbench.runtimes.gguf.graphs.convolutions import convolve, snake_convolve
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner

SHAPES = [(1, 7, 20), (1, 1, 3), (3, 1, 20), (20, 7, 20), (10, 3, 5), (33, 4, 16), (64, 3, 8), (70, 7, 6)]
"""Output channels, taps and input channels."""
TOLERANCE = 5e-6  # absolute, of sums of up to 140 products in float32, in another order


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphRunner]:
    tensors = {}
    for number, shape in enumerate(SHAPES):
        tensors[f"c{number}__weight"] = random_array(*shape, seed=number) / (shape[1] * shape[2]) ** 0.5
        tensors[f"c{number}__bias"] = random_array(shape[0], seed=number + 50)
        tensors[f"c{number}__alpha"] = np.abs(random_array(shape[2], seed=number + 90)) + 0.1
    engine = GraphRunner(write_file(tmp_path_factory.mktemp("convolutions") / "it.gguf", **tensors), threads=2)
    yield engine
    engine.close()


def pytorch_convolution(
    engine: GraphRunner, name: str, x: np.ndarray, padding: int, stride: int, dilation: int
) -> np.ndarray:
    kernel, bias = (torch.from_numpy(engine.weights.file.array(f"{name}.{last}").copy()) for last in ("weight", "bias"))
    wave = torch.from_numpy(x.T[None].copy())
    output: np.ndarray = F.conv1d(wave, kernel.permute(0, 2, 1), bias, stride, padding, dilation)[0].T.numpy()
    return output


@settings(max_examples=80)
@given(
    number=st.integers(0, len(SHAPES) - 1),
    frames=st.integers(1, 90),
    padding=st.integers(0, 9),
    steps=st.sampled_from([(1, 1), (1, 2), (1, 3), (1, 9), (2, 1), (5, 1)]),
)
def test_convolution_equals_pytorch_for_any_stride_dilation_and_padding(
    engine: GraphRunner, number: int, frames: int, padding: int, steps: tuple[int, int]
) -> None:
    (out, taps, width), (stride, dilation), name = SHAPES[number], steps, f"c{number}"
    frames = max(frames, (taps - 1) * dilation + 1 - 2 * padding)
    x = random_array(frames, width, seed=frames)
    output = engine.run(
        lambda g: {"it": convolve(g, g.input(x), g.scope / name, out, taps, padding, stride, dilation)}
    )["it"]
    np.testing.assert_allclose(
        output, pytorch_convolution(engine, name, x, padding, stride, dilation), rtol=1e-6, atol=TOLERANCE
    )


@settings(max_examples=25)
@given(
    number=st.sampled_from([n for n, (_, taps, _) in enumerate(SHAPES) if taps % 2]),
    frames=st.integers(1, 90),
    dilation=st.sampled_from([1, 3, 9]),
)
def test_snake_activation_before_a_convolution_equals_its_definition(
    engine: GraphRunner, number: int, frames: int, dilation: int
) -> None:
    (out, taps, width), name = SHAPES[number], f"c{number}"
    x, alpha = random_array(frames, width, seed=frames), engine.weights.file.array(f"{name}.alpha")
    output = engine.run(
        lambda g: {"it": snake_convolve(g, g.input(x), g.scope / name, g.scope / name, out, taps, dilation)}
    )["it"]
    activated = (x + np.sin(alpha * x) ** 2 / (alpha + 1e-9)).astype(np.float32)
    assert output.shape == (frames, out)
    np.testing.assert_allclose(
        output,
        pytorch_convolution(engine, name, activated, taps // 2 * dilation, 1, dilation),
        rtol=1e-6,
        atol=TOLERANCE,
    )
