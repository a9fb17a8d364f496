"""Silero's voice activity network in numpy: a probability of speech for each 32 ms of sound at 16 kHz.

`encoded` is the part without memory, for many chunks at a time; `Memory` is the recurrent part. The weights are those
of the package `silero-vad`. The package itself needs torch, which takes seconds to import, and which a session on GGUF
and a server's own process do not need.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from workbench.core.errors import Unavailable

CHUNK = 512  # samples per probability: 32 ms
CONTEXT = 64  # samples of the previous chunk that the network also sees
_WINDOW, _HOP = 256, 128  # samples of a spectrum, and from one to the next
_WIDTH = 128  # of features and of the recurrent state
_WEIGHTS = "data/silero_vad_16k_op15.onnx"  # the network of the package's own calls, for 16 kHz alone
_STRIDES = (1, 2, 2, 1)  # of the encoder's convolutions
_GATE_SCALES = np.repeat(np.array([0.5, 0.5, 1.0, 0.5], np.float32), _WIDTH)  # of enter, forget, new and out
_GATE_SHIFTS = np.repeat(np.array([0.5, 0.5, 0.0, 0.5], np.float32), _WIDTH)
_QUIETLY = np.errstate(over="ignore", invalid="ignore")  # sound that is far too loud overflows without a warning


@cache
def _weights() -> MappingProxyType[str, np.ndarray]:
    """Returns the weights by name, as matrices [inputs, outputs]; a convolution has frames x channels inputs.

    The gates `enter`, `forget` and `out` of the recurrent part are sigmoids, and sigmoid(x) = (1 + tanh(x / 2)) / 2. So
    this function halves their weights, and `Memory` computes one tanh for all gates. Raises `Unavailable` if the
    package, or `onnx`, is not installed.
    """
    package = find_spec("silero_vad")
    place = Path(str(package.origin)).parent / _WEIGHTS if package is not None and package.origin else None
    if place is None or not place.is_file() or find_spec("onnx") is None:
        raise Unavailable(
            "voice activity detection needs silero-vad, version 6, and onnx: pip install 'silero-vad>=6' onnx"
        )
    import onnx
    from onnx.numpy_helper import to_array

    tensors = {each.name.removeprefix("model."): to_array(each) for each in onnx.load(place).graph.initializer}
    found = {
        name: np.ascontiguousarray(value.T).reshape(-1, len(value)) if value.ndim > 1 else value
        for name, value in tensors.items()
        if value.dtype == np.float32
    }
    found["decoder.rnn.bias"] = found["decoder.rnn.bias_ih"] + found["decoder.rnn.bias_hh"]
    for name in ("weight_ih", "weight_hh", "bias"):
        found[f"decoder.rnn.{name}"] = found[f"decoder.rnn.{name}"] * _GATE_SCALES
    return MappingProxyType(found)


@_QUIETLY
def encoded(chunks: np.ndarray) -> np.ndarray:
    """Returns the features [n, 128] of chunks [n, 576], float32, each with the 64 samples before it."""
    weights = _weights()
    padded = np.pad(chunks, ((0, 0), (0, CONTEXT)), mode="reflect")
    frames = sliding_window_view(padded, _WINDOW, axis=1)[:, ::_HOP]  # [n, frames, 256]
    spectra = frames.reshape(-1, _WINDOW) @ weights["stft.forward_basis_buffer"]
    real, imaginary = np.split(spectra, 2, axis=1)
    found = np.sqrt(real**2 + imaginary**2).reshape(len(chunks), frames.shape[1], -1)
    for number, stride in enumerate(_STRIDES):
        layer = f"encoder.{number}.reparam_conv"
        found = _convolved(found, weights[f"{layer}.weight"], weights[f"{layer}.bias"], stride)
    return found[:, 0]


def _convolved(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    """Returns a convolution over time of x [n, frames, channels], padded by one frame at both ends, after its ReLU."""
    padded = np.pad(x, ((0, 0), (1, 1), (0, 0))).reshape(len(x), -1)
    windows = sliding_window_view(padded, len(weight), axis=1)[:, :: stride * x.shape[2]]  # [n, frames, 3 x channels]
    columns = windows.reshape(-1, len(weight))
    return np.maximum(columns @ weight + bias, 0.0).reshape(len(x), windows.shape[1], -1)


class Memory:
    """The recurrent part with its state, for some sequences side by side.

    Raises `Unavailable` if the network is not installed.
    """

    def __init__(self, sequences: int = 1) -> None:
        self._weights = _weights()
        self._hidden = np.zeros((sequences, _WIDTH), np.float32)
        self._cell = np.zeros((sequences, _WIDTH), np.float32)

    @_QUIETLY
    def probabilities(self, features: np.ndarray) -> np.ndarray:
        """Returns the probabilities of speech [steps, sequences] of the next features [steps, sequences, 128]."""
        weights, cell, recurrent = self._weights, self._cell, self._weights["decoder.rnn.weight_hh"]
        steps = features @ weights["decoder.rnn.weight_ih"] + weights["decoder.rnn.bias"]
        states = np.empty(features.shape, np.float32)
        hidden, gates = self._hidden, np.empty(steps.shape[1:], np.float32)
        enter, forget, new, out = np.split(gates, 4, axis=1)
        for step, state in zip(steps, states, strict=True):
            np.matmul(hidden, recurrent, out=gates)
            gates += step
            np.tanh(gates, out=gates)
            gates *= _GATE_SCALES
            gates += _GATE_SHIFTS
            cell *= forget
            cell += np.multiply(enter, new, out=new)
            np.multiply(np.tanh(cell, out=state), out, out=state)
            hidden = state
        self._hidden = hidden.copy()
        final = np.maximum(states, 0.0) @ weights["decoder.decoder.2.weight"][:, 0]
        return np.asarray(1.0 / (1.0 + np.exp(-final - weights["decoder.decoder.2.bias"][0])))
