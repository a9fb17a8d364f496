"""Summation in other orders and inputs rounded as in ggml: results equal up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional as F

from workbench.runtimes.pytorch.numerics.summation import STEPS, Summation
from workbench.runtimes.pytorch.numerics.weight_override import STORED_TYPE

X = torch.randn(20, 96, generator=torch.Generator().manual_seed(0))
W, B = (torch.randn(*shape, generator=torch.Generator().manual_seed(1)) for shape in ((7, 96), (7,)))


def relative_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    return float((actual.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("bias", [None, B])
@pytest.mark.parametrize(("kind", "roundoff"), [("float32", 2**-24), ("bfloat16", 2**-8), ("float16", 2**-11)])
def test_each_summation_number_gives_a_repeatable_order_within_rounding_error(
    kind: str, roundoff: float, bias: torch.Tensor | None
) -> None:
    dtype = getattr(torch, kind)
    x, w, b = (None if tensor is None else tensor.to(dtype) for tensor in (X, W, bias))
    exact = F.linear(x.double(), w.double(), None if b is None else b.double())
    outputs = []
    for number in range(1, 6):
        with Summation(number):
            outputs.append(F.linear(x, w, b))
        assert outputs[-1].dtype == dtype and 0 < relative_error(outputs[-1], exact) < 4 * roundoff
        with Summation(number):
            assert torch.equal(F.linear(x, w, b), outputs[-1]), "a number always means the same order"
    assert len({tensor.float().numpy().tobytes() for tensor in outputs}) > 2
    assert torch.equal(F.linear(x, w, b), F.linear(x, w, b)), "the mode ends with its block"


def test_float64_stays_as_it_is() -> None:
    with Summation(1):
        output = F.linear(X.double(), W.double())
    assert torch.equal(output, F.linear(X.double(), W.double()))


@pytest.mark.parametrize(
    ("stored", "size"), [("Q8_0", 32), ("Q4_0", 32), ("Q4_K", 256), ("F16", 1), ("BF16", 1), ("F32", 0)]
)
def test_inputs_are_rounded_as_the_type_of_the_weights_asks(stored: str, size: int) -> None:
    """The error of a block is a uniform error within a step of its largest value / 127."""
    weight = W.clone()
    setattr(weight, STORED_TYPE, stored)
    exact = F.linear(X.double(), W.double())
    with Summation(1):
        rounding_error = relative_error(F.linear(X, weight), exact)
    if size == 0:
        assert rounding_error < 1e-6
    elif size == 1:
        assert 2**-13 < rounding_error < 2**-8
    else:
        largest = np.abs(X.numpy()).max()
        assert 1e-3 < rounding_error < float(largest) / STEPS / 12**0.5 * 1.3


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_convolution_with_kernel_size_one_is_rounded_like_a_matrix(guard: Any) -> None:
    tap = W.unsqueeze(2).clone()
    weight = W.clone()
    setattr(tap, STORED_TYPE, "Q4_0")
    setattr(weight, STORED_TYPE, "Q4_0")
    with guard(), Summation(1):
        output = F.linear(X, tap.squeeze(2))
    with Summation(1):
        assert torch.equal(output, F.linear(X, weight))
    assert relative_error(output, F.linear(X.double(), W.double())) > 1e-3
