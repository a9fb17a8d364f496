"""SenseVoiceSmall on ggml: the network as a graph, and a session for a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

import numpy as np

from workbench.core.settings import Settings
from workbench.families.sanm.sensevoice import QUERIES, QUERY_FRAMES, SenseVoiceModel, read_sensevoice
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.pipelines.recognition.sensevoice import SenseVoicePipeline
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.runtimes.gguf.files.unpacking import notes, unpacked
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner, Result
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks import output_layer
from workbench.runtimes.gguf.networks.cmvn import read_cmvn
from workbench.runtimes.gguf.networks.sanm import encode, encode_joined, encoder_input
from workbench.trace.recorder import Recorder


class SenseVoiceGraph:
    """A loaded network with numpy arrays in and out.

    It implements `workbench.pipelines.recognition.sensevoice.SenseVoiceNetwork`.
    Raises `BadInput` if the file's tensors do not match its configuration.
    """

    def __init__(self, file: GgufFile, model: SenseVoiceModel, threads: int | None = None):
        self.dtype = file.quantization
        self.config = model.encoder
        self.vocabulary = len(model.vocabulary)
        file.expect("embed.weight", (QUERIES, model.encoder.input_size))
        self._file = file
        self._engine = GraphRunner(file, threads)
        self._engine.check(self._all_parts)

    def _all_parts(self, g: Graph) -> dict[str, Tensor]:
        x = g.input(np.zeros((2, self.config.input_size), dtype=np.float32))
        encoded = encode(g, x, g.scope / "encoder", self.config)
        return output_layer.logit_parts(g, encoded, g.scope / "ctc" / "ctc_lo", self.vocabulary)

    def logits(self, features: np.ndarray, queries: tuple[int, ...], recorder: Recorder | None) -> Iterator[np.ndarray]:
        """See `SenseVoiceNetwork.logits`."""
        x = self._input(features, queries)
        encoded = self._engine.run(
            lambda g: {"encoded": encode(g, g.input(x), g.scope / "encoder", self.config)}, recorder
        )["encoded"]
        return self._logit_blocks(encoded)

    def joined_logits(self, features: Sequence[np.ndarray], queries: tuple[int, ...]) -> Iterator[Iterator[np.ndarray]]:
        """See `LogitsOfJoined.joined_logits`."""
        inputs = [self._input(each, queries) for each in features]
        return map(self._logit_blocks, encode_joined(self._engine, inputs, self.config))

    def _input(self, features: np.ndarray, queries: tuple[int, ...]) -> np.ndarray:
        rows = self._file.rows("embed.weight", queries)
        return encoder_input(np.concatenate([rows, features]), self.config)

    def _logit_blocks(self, encoded: np.ndarray) -> Iterator[np.ndarray]:
        layer = Scope(self._engine.weights) / "ctc" / "ctc_lo"
        return output_layer.logit_blocks(self._engine, encoded, layer, self.vocabulary)

    @property
    def lanes(self) -> int:
        """See `workbench.pipelines.recognition.batches.RunsInParallel`."""
        return self._engine.lanes

    def run_parallel(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """See `workbench.pipelines.recognition.batches.RunsInParallel`."""
        return self._engine.run_parallel(tasks)

    def arithmetic_of(self, frames: int) -> Hashable:
        """See `workbench.pipelines.recognition.batches.RunsInParallel`."""
        return self._engine.arithmetic_of(frames + QUERY_FRAMES)

    def close(self) -> None:
        """Frees the memory."""
        self._engine.close()


def open_session(path: Path, name: str, settings: Settings) -> SpeechSession:
    """Opens a session for a GGUF file; results call the model `name`."""
    file = read_gguf(path)
    with unpacked(file) as directory:
        model = read_sensevoice(directory, weights=file.path)
        cmvn, _ = read_cmvn(file, model.cmvn_file)
    network = SenseVoiceGraph(file, model, settings.threads)
    return SpeechSession(name, "gguf", SenseVoicePipeline(model, cmvn, network), notes(file))
