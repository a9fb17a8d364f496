"""FSMN-VAD on ggml: the network as a graph, and a session for a GGUF file.

The weights, half a million at most, are read as float32 and padded with zeros to sizes for which ggml has a fast
kernel; the result stays the same. Axes: T frames of 10 ms, M width of the memory, P frames of memory from earlier
calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workbench.audio.frontend import Frontend
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.core.softmax import softmax
from workbench.families.voice_activity.fsmn_vad import FsmnConfig, read_fsmn_vad
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.pipelines.detection.detection_session import DetectionSession
from workbench.pipelines.detection.fsmn_vad import FsmnVad
from workbench.runtimes.gguf.files.unpacking import notes, unpacked
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks.cmvn import read_cmvn

FAST = 16  # sizes that are multiples of this are fast


class FsmnGraph:
    """A loaded network with numpy arrays in and out; implements `workbench.pipelines.detection.fsmn_vad.FsmnNetwork`.

    Raises `BadInput` if the file's tensors do not match its configuration.
    """

    def __init__(self, file: GgufFile, config: FsmnConfig, threads: int | None = None):
        self.dtype = file.quantization
        self.config = config
        self.classes = config.output_dim
        self.past = (config.lorder - 1) * config.lstride
        self._engine = GraphRunner(file, threads, repack=False)  # PyTorch may compute in this process too, see `amx`
        self._engine.check(lambda g: self._network(g, np.zeros((2, config.input_dim), np.float32), self.start()))

    def start(self) -> list[np.ndarray]:
        """See `FsmnNetwork.start`; returns zeros, one [P, M] per block."""
        return [np.zeros((self.past, _round_up(self.config.proj_dim)), np.float32)] * self.config.fsmn_layers

    def score(self, features: np.ndarray, past: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        """See `FsmnNetwork.score`."""
        outputs = self._engine.run(lambda g: self._network(g, features, past))
        next_memories = [
            _last(np.concatenate([each, outputs[f"memory.{n}"]]), self.past) for n, each in enumerate(past)
        ]
        return softmax(outputs["logits"][:, : self.classes]), next_memories

    def _network(self, g: Graph, features: np.ndarray, past: Sequence[np.ndarray]) -> dict[str, Tensor]:
        """Returns logits of features [T, width], and under `memory.N` the frames [T, M] that go into each memory."""
        config, encoder = self.config, g.scope / "encoder"
        x, outputs = g.input(_pad(features, (1, FAST))), {}
        x = _linear(g, x, encoder / "in_linear1", config.input_dim, config.input_affine_dim)
        x = _linear(g, x, encoder / "in_linear2", config.input_affine_dim, config.linear_dim)
        g.expect_finite("encoder.in_linear2", x)
        x = g.relu(x)
        for n, before in enumerate(past):
            block = encoder / "fsmn" / n
            x = _linear(g, x, block / "linear", config.linear_dim, config.proj_dim, bias=False)
            outputs[f"memory.{n}"] = x
            x = g.add(x, self._memory(g, x, block / "fsmn_block", before))
            x = _linear(g, x, block / "affine", config.proj_dim, config.linear_dim)
            g.expect_finite(f"encoder.fsmn.{n}.affine", x)
            x = g.relu(x)
        x = _linear(g, x, encoder / "out_linear1", config.linear_dim, config.output_affine_dim)
        x = _linear(g, x, encoder / "out_linear2", config.output_affine_dim, config.output_dim)
        return {**outputs, "logits": x}

    def _memory(self, g: Graph, x: Tensor, scope: Scope, before: np.ndarray) -> Tensor:
        """Returns a weighted sum of the last frames of x [T, M], each channel separately."""
        shape = (self.config.lorder, self.config.proj_dim)
        extended = g.concatenate(g.input(before), x) if self.past else x
        return g.depthwise(extended, scope.arranged("conv_left.weight", shape, self._spread), 0, 0)

    def _spread(self, kernel: np.ndarray) -> np.ndarray:
        """Returns the kernel [lorder, M] as one [P + 1, M] with a tap on every frame: zeros between the original
        taps.
        """
        spread = np.zeros((self.past + 1, kernel.shape[1]), np.float32)
        spread[:: self.config.lstride] = kernel
        return _pad(spread, (1, FAST))

    def close(self) -> None:
        """Frees the memory."""
        self._engine.close()


def _linear(g: Graph, x: Tensor, scope: Scope, inputs: int, outputs: int, bias: bool = True) -> Tensor:
    """Applies a linear layer, whose name is one level deeper than usual: [T, inputs] to [T, outputs], both padded."""
    layer = scope / "linear"
    y = g.matmul(layer.arranged("weight", (outputs, inputs), _pad), x)
    return g.add(y, layer.arranged("bias", (outputs,), _pad)) if bias else y


def _pad(values: np.ndarray, multiples: Sequence[int] = (FAST, FAST)) -> np.ndarray:
    """Returns the array, padded with zeros at the end to multiples of these sizes along its axes."""
    return np.pad(values, [(0, -size % each) for size, each in zip(values.shape, multiples)])


def _round_up(size: int) -> int:
    return size + -size % FAST


def _last(frames: np.ndarray, count: int) -> np.ndarray:
    return frames[len(frames) - count :]


def open_fsmn_vad(path: str | Path, threads: int | None = None) -> tuple[FsmnVad, tuple[str, ...]]:
    """Returns the detector of a GGUF file, and notes about the file for its users.

    Raises `BadInput` for a file that is damaged, of another family, or inconsistent.
    """
    file = read_gguf(path)
    with unpacked(file) as directory:
        model = read_fsmn_vad(directory, weights=file.path)
        cmvn, _ = read_cmvn(file, model.cmvn_file)
    if model.network is None:
        raise BadInput(f"{file.name} carries no config.yaml; expected the network's dimensions in it")
    network = FsmnGraph(file, model.network, threads)
    return FsmnVad(network, Frontend(model.frontend, cmvn), model.detector), notes(file)


def open_detector(path: str | Path) -> FsmnVad:
    """Opens the detector that a recogniser uses in its own process. Raises the same errors as `open_fsmn_vad`."""
    return open_fsmn_vad(path)[0]


def open_session(path: Path, name: str, settings: Settings) -> DetectionSession:
    """Opens a session for a GGUF file; results call the model `name`."""
    detector, notes = open_fsmn_vad(path, settings.threads)
    return DetectionSession(name, "gguf", detector, notes)
