"""The CIF predictor on ggml: counts Paraformer's tokens and locates them in time (see `workbench.decoding.cif`).

Convolutions and projections are ggml graphs; steps that go frame by frame take little time and use numpy. Axes: T
encoder frames, N tokens, D width, U the upsampling of BiCif's second head. Tensor names are the published ones.
"""

from __future__ import annotations

import numpy as np

from workbench.families.sanm.paraformer import CifConfig
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks.lstm import recur, sigmoid

DIRECTIONS = ("", "_reverse")  # PyTorch's suffixes for the two directions of a bidirectional LSTM


def scores(g: Graph, encoded: Tensor, scope: Scope, config: CifConfig, residual: bool = False) -> Tensor:
    """Returns a score from 0 to 1 for each of the encoded frames [T, D]: [T, 1].

    Args:
        residual: add the frames to their convolution before the ReLU, as FunASR's C++ runtime does.
    """
    return g.sigmoid(g.linear(_local(g, encoded, scope, config, residual), scope / "cif_output", 1))


def _local(g: Graph, encoded: Tensor, scope: Scope, config: CifConfig, residual: bool = False) -> Tensor:
    layer, size = scope / "cif_conv1d", config.left_order + config.right_order + 1
    kernel = layer.array("weight", (config.width, config.width, size))
    local = g.convolution(encoded, kernel, config.left_order, config.right_order)
    local = g.add(local, layer.vector("bias", config.width))
    return g.relu(g.add(local, encoded) if residual else local)


def weights_of(scores: np.ndarray, config: CifConfig) -> np.ndarray:
    """Returns the weight of each frame [T + 1] from the scores [T, 1]; the last weight is the tail's, which lets an
    unfinished token fire.
    """
    weights = _scale_weights(scores[:, 0], config.smooth_factor, config.noise_threshold)
    return np.append(weights, np.float32(config.tail_threshold))


def _scale_weights(scores: np.ndarray, factor: float, threshold: float) -> np.ndarray:
    return np.maximum(scores * np.float32(factor) - np.float32(threshold), np.float32(0))


# BiCif's second head, used only for times.


def fine_parts(g: Graph, encoded: Tensor, scope: Scope, config: CifConfig) -> dict[str, Tensor]:
    """Returns the second head's values of the encoded frames [T, D] before its LSTM.

    They are its frames [T * U, D] under "frames". If the head has an LSTM, they are the LSTM's inputs at each step [T *
    U, 4D] under the names of `DIRECTIONS`, without the biases of the recurrent half.
    """
    source = _local(g, encoded, scope, config) if config.upsample_after_conv else encoded
    frames = g.add(_upsample(g, source, scope / "upsample_cnn", config.upsample), _upsample_bias(scope, config))
    if not config.blstm:
        return {"frames": frames}
    lstm, width = scope / "blstm", config.width
    return {
        name: g.add(
            g.matmul(lstm.matrix(f"weight_ih_l0{name}", (4 * width, width)), frames),
            lstm.vector(f"bias_ih_l0{name}", 4 * width),
        )
        for name in DIRECTIONS
    }


def _upsample(g: Graph, x: Tensor, layer: Scope, times: int) -> Tensor:
    """Applies a transposed convolution with a stride of its kernel's size and without a bias: x [T, D] gives [T *
    times, D].

    With this stride no two outputs overlap, so it is one matrix product.
    """
    frames, width = x.shape
    matrix = layer.arranged("weight", (width, width, times), _kernel_matrix)
    return g.reshape(g.matmul(matrix, x), (frames * times, width))


def _kernel_matrix(kernel: np.ndarray) -> np.ndarray:
    """Returns a transposed convolution's kernel [in, out, U] as a matrix [U * out, in]."""
    return kernel.transpose(2, 1, 0).reshape(-1, kernel.shape[0])


def _upsample_bias(scope: Scope, config: CifConfig) -> Tensor:
    return (scope / "upsample_cnn").vector("bias", config.width)


class FineWeights:
    """The second head's tensors that numpy computes with; raises `BadInput` if they are missing or misshapen."""

    def __init__(self, file: GgufFile, prefix: str, config: CifConfig):
        self.config = config
        self._file, self._prefix, width = file, prefix, config.width
        shapes: dict[str, tuple[int, ...]] = {
            "cif_output2.weight": (1, 2 * width if config.blstm else width),
            "cif_output2.bias": (1,),
        }
        if config.blstm:
            for name in DIRECTIONS:
                shapes[f"blstm.weight_hh_l0{name}"] = (4 * width, width)
                shapes[f"blstm.bias_hh_l0{name}"] = (4 * width,)
        for name, shape in shapes.items():
            file.expect(prefix + name, shape)

    def __call__(self, parts: dict[str, np.ndarray], tokens: int) -> np.ndarray:
        """Returns weights at the finer rate [T * U], scaled to sum to `tokens`, from the arrays of `fine_parts`."""
        frames = self._run_lstm(parts) if self.config.blstm else parts["frames"]
        scores = sigmoid(frames @ self._array("cif_output2.weight").reshape(-1) + self._array("cif_output2.bias"))
        weights = _scale_weights(scores, self.config.fine_smooth_factor, self.config.fine_noise_threshold)
        return weights * (np.float32(tokens) / weights.sum())

    def _run_lstm(self, parts: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the bidirectional LSTM's output [T * U, 2D]; its second half ran over the frames from last to
        first.
        """
        inputs = [parts[name] + self._array(f"blstm.bias_hh_l0{name}") for name in DIRECTIONS]
        weights = [self._array(f"blstm.weight_hh_l0{name}") for name in DIRECTIONS]
        forward, backward = recur(np.stack([inputs[0], inputs[1][::-1]]), np.stack(weights))
        return np.concatenate([forward, backward[::-1]], axis=1)

    def _array(self, name: str) -> np.ndarray:
        return self._file.array(self._prefix + name)
