"""The LSTM's recurrence in numpy against PyTorch's."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.runtimes.gguf.networks.lstm import recur, sigmoid


@settings(max_examples=40)
@given(
    width=st.integers(1, 9) | st.sampled_from([97, 300]),
    features=st.integers(1, 7),
    steps=st.integers(1, 30),
    size=st.sampled_from([0.1, 1.0, 30.0]),
)
def test_bidirectional_lstm_equals_pytorch(width: int, features: int, steps: int, size: float) -> None:
    torch.manual_seed(steps)
    lstm = torch.nn.LSTM(features, width, bidirectional=True)
    x = size * torch.randn(steps, features)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.normal_(std=2 / width**0.5)
        expected = lstm(x)[0].numpy()
    weights = {name: each.detach().numpy() for name, each in lstm.named_parameters()}
    inputs = [
        (x.numpy() @ weights[f"weight_ih_l0{name}"].T + weights[f"bias_ih_l0{name}"] + weights[f"bias_hh_l0{name}"])
        for name in ("", "_reverse")
    ]
    recurrent = np.stack([weights["weight_hh_l0"], weights["weight_hh_l0_reverse"]])
    forward, backward = recur(np.stack([inputs[0], inputs[1][::-1]]), recurrent)
    assert forward.dtype == np.float32
    np.testing.assert_allclose(np.concatenate([forward, backward[::-1]], axis=1), expected, atol=2e-5)


def test_sigmoid_does_not_overflow() -> None:
    with np.errstate(all="raise"):
        values = sigmoid(np.array([-1e30, -100.0, 0.0, 100.0, 1e30], np.float32))
    np.testing.assert_allclose(values, [0, 0, 0.5, 1, 1], atol=1e-7)
