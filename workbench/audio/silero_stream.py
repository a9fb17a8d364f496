"""Silero's voice activity network for streaming: one probability for each 32 ms of sound.

The same network as in `workbench.audio.silero`, computed by numpy alone, so that a server's own process needs no torch
for it. A chunk takes a fraction of a millisecond. The weights are those of the `silero-vad` package.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from workbench.core.errors import Unavailable

CHUNK = 512  # samples per probability: 32 ms at 16 kHz
_CONTEXT = 64  # samples of the previous chunk that the network also sees
_WINDOW, _HOP = 256, 128  # samples of a spectrum, and from one to the next
_WIDTH = 128  # of the recurrent state
_WEIGHTS = "data/silero_vad_16k_op15.onnx"  # the network of the package's own calls, for 16 kHz alone
_STRIDES = (1, 2, 2, 1)  # of the encoder's convolutions


@cache
def _weights() -> MappingProxyType[str, np.ndarray]:
    """Returns the weights by name; those of convolutions as matrices [outputs, inputs x frames]."""
    package = find_spec("silero_vad")
    place = Path(str(package.origin)).parent / _WEIGHTS if package is not None and package.origin else None
    if place is None or not place.is_file() or find_spec("onnx") is None:
        raise Unavailable("live transcription needs silero-vad, version 6, and onnx: pip install 'silero-vad>=6' onnx")
    import onnx
    from onnx.numpy_helper import to_array

    tensors = {each.name.removeprefix("model."): to_array(each) for each in onnx.load(place).graph.initializer}
    found = {name: value.reshape(len(value), -1) if value.ndim == 3 else value for name, value in tensors.items()}
    return MappingProxyType(found)


class SileroStream:
    """The network with its recurrent state."""

    def __init__(self) -> None:
        self._weights = _weights()
        self.forget()

    def forget(self) -> None:
        """Resets the state, as at the start of a recording."""
        self._context = np.zeros(_CONTEXT, np.float32)
        self._hidden, self._cell = np.zeros(_WIDTH, np.float32), np.zeros(_WIDTH, np.float32)

    def probability(self, chunk: np.ndarray) -> float:
        """Returns the probability that the next 512 samples (float32 at 16 kHz) are speech."""
        weights = self._weights
        samples = np.concatenate([self._context, chunk])
        self._context = samples[-_CONTEXT:]
        padded = np.pad(samples, (0, _CONTEXT), mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_HOP]
        spectrum = weights["stft.forward_basis_buffer"] @ frames.T  # [258, frames]
        middle = len(spectrum) // 2
        found = np.sqrt(spectrum[:middle] ** 2 + spectrum[middle:] ** 2)
        for number, stride in enumerate(_STRIDES):
            layer = f"encoder.{number}.reparam_conv"
            found = _convolved(found, weights[f"{layer}.weight"], weights[f"{layer}.bias"], stride)
        self._step(found[:, 0])
        final = weights["decoder.decoder.2.weight"][0] @ np.maximum(self._hidden, 0)
        return float(_sigmoid(final + weights["decoder.decoder.2.bias"][0]))

    def _step(self, features: np.ndarray) -> None:
        weights = self._weights
        gates = (
            weights["decoder.rnn.weight_ih"] @ features
            + weights["decoder.rnn.weight_hh"] @ self._hidden
            + (weights["decoder.rnn.bias_ih"] + weights["decoder.rnn.bias_hh"])
        )
        enter, forget, new, out = np.split(gates, 4)
        self._cell = _sigmoid(forget) * self._cell + _sigmoid(enter) * np.tanh(new)
        self._hidden = _sigmoid(out) * np.tanh(self._cell)


def _convolved(found: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    """Returns a convolution over time, three frames wide and padded by one at both ends, after its ReLU."""
    padded = np.pad(found, ((0, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1)[:, ::stride]  # [channels, frames, 3]
    columns = windows.transpose(0, 2, 1).reshape(3 * len(found), -1)
    return np.maximum(weight @ columns + bias[:, None], 0.0)


def _sigmoid(value: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-value))
