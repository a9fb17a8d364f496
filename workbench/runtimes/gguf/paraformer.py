"""Paraformer on ggml: the network as graphs, and a session for a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.settings import Settings
from workbench.decoding.cif import fire
from workbench.families.sanm.paraformer import ParaformerModel, read_paraformer, token_count
from workbench.families.sanm.seaco import Hotwords
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.pipelines.recognition.paraformer import Decoded, ParaformerPipeline
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.runtimes.gguf.files.unpacking import notes, unpacked
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner, Result
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.hotwords import FirstPass, HotwordBias
from workbench.runtimes.gguf.networks import cif, output_layer, sanm_decoder
from workbench.runtimes.gguf.networks.cmvn import read_cmvn
from workbench.runtimes.gguf.networks.sanm import encode, encode_joined, encoder_input
from workbench.trace.recorder import Recorder


class ParaformerGraph:
    """A loaded network with numpy arrays in and out.

    It implements `workbench.pipelines.recognition.paraformer.ParaformerNetwork`.
    Raises `BadInput` if the file's tensors do not match its configuration.
    """

    def __init__(self, file: GgufFile, model: ParaformerModel, threads: int | None = None):
        self.dtype = file.quantization
        self.encoder, self.predictor, self.decoder = model.encoder, model.predictor, model.decoder
        self.vocabulary = len(model.vocabulary)
        self._fine = cif.FineWeights(file, "predictor.", model.predictor) if model.predictor.upsample else None
        self._engine = GraphRunner(file, threads)
        self.model = model.with_branch(file.tensors)
        seaco = self.model.seaco
        self._hotwords = HotwordBias(file, seaco, self.vocabulary, self._engine) if seaco else None
        self._engine.check(self._all_parts)

    def _all_parts(self, g: Graph) -> dict[str, Tensor]:
        x = g.input(np.zeros((2, self.encoder.input_size), dtype=np.float32))
        encoded = encode(g, x, g.scope / "encoder", self.encoder)
        decoded = sanm_decoder.decode(g, encoded, encoded, g.scope / "decoder", self.decoder)
        return {
            "scores": cif.scores(g, encoded, g.scope / "predictor", self.predictor),
            **(self._fine_parts(g, encoded) if self._fine else {}),
            **output_layer.logit_parts(g, decoded, g.scope / "decoder" / "output_layer", self.vocabulary),
            **(self._hotwords.parts(g, encoded) if self._hotwords else {}),
        }

    def _fine_parts(self, g: Graph, encoded: Tensor) -> dict[str, Tensor]:
        return cif.fine_parts(g, encoded, g.scope / "predictor", self.predictor)

    def decode(
        self, features: np.ndarray, recorder: Recorder | None, cif_residual: bool = False, hotwords: Hotwords = ()
    ) -> Decoded:
        """See `ParaformerNetwork.decode`."""

        def encoder(g: Graph) -> dict[str, Tensor]:
            x = encode(g, g.input(encoder_input(features, self.encoder)), g.scope / "encoder", self.encoder)
            return {"encoded": x, "scores": cif.scores(g, x, g.scope / "predictor", self.predictor, cif_residual)}

        outputs = self._engine.run(encoder, recorder)
        return self._decoded(outputs["encoded"], outputs["scores"], hotwords, recorder)

    def decode_joined(
        self, features: Sequence[np.ndarray], cif_residual: bool = False, hotwords: Hotwords = ()
    ) -> Iterator[Decoded]:
        """See `DecodesJoined.decode_joined`."""

        def scores(g: Graph, encoded: np.ndarray) -> dict[str, Tensor]:
            return {"scores": cif.scores(g, g.input(encoded), g.scope / "predictor", self.predictor, cif_residual)}

        inputs = [encoder_input(each, self.encoder) for each in features]
        for encoded in encode_joined(self._engine, inputs, self.encoder):
            outputs = self._engine.run(partial(scores, encoded=encoded))
            yield self._decoded(encoded, outputs["scores"], hotwords, None)

    def _decoded(
        self, encoded: np.ndarray, scores: np.ndarray, hotwords: Hotwords, recorder: Recorder | None
    ) -> Decoded:
        """Returns what the predictor and the decoder make of encoded frames [T, D] and the predictor's scores."""
        alphas = cif.weights_of(scores, self.predictor)
        alphas = recorder.put("predictor.alphas", alphas) if recorder else alphas
        tokens = token_count(float(alphas.sum()))
        embeddings = fire(encoded, alphas[:-1], tokens)  # the tail adds weight, but has no encoder frame
        embeddings = recorder.put("predictor.embeddings", embeddings) if recorder else embeddings
        logits = self._logits(embeddings, encoded, hotwords, recorder) if len(embeddings) else None
        return Decoded(logits, alphas, encoded)

    def _logits(
        self, embeddings: np.ndarray, encoded: np.ndarray, hotwords: Hotwords, recorder: Recorder | None
    ) -> np.ndarray:
        """Returns logits [N, V] of acoustic embeddings [N, D] and encoded frames [T, D]."""

        def decoder(g: Graph) -> dict[str, Tensor]:
            x = sanm_decoder.decode(g, g.input(embeddings), g.input(encoded), g.scope / "decoder", self.decoder)
            return {"decoded": x}

        decoded = self._engine.run(decoder, recorder)["decoded"]
        layer = Scope(self._engine.weights) / "decoder" / "output_layer"
        logits = output_layer.logits(self._engine, decoded, layer, self.vocabulary)
        if hotwords:
            assert self._hotwords is not None, "asked of a model without the branch"
            logits = self._hotwords(FirstPass(embeddings, decoded, logits), hotwords, recorder)
        return recorder.put("logits", logits) if recorder else logits

    def fine_alphas(self, encoded: Any, tokens: int) -> np.ndarray:
        """See `ParaformerNetwork.fine_alphas`."""
        assert self._fine is not None, "asked of a model without the second head"
        return self._fine(self._engine.run(lambda g: self._fine_parts(g, g.input(encoded))), tokens)

    @property
    def lanes(self) -> int:
        """See `workbench.pipelines.recognition.batches.RunsInParallel`."""
        return self._engine.lanes

    def run_parallel(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """See `workbench.pipelines.recognition.batches.RunsInParallel`."""
        return self._engine.run_parallel(tasks)

    def arithmetic_of(self, frames: int) -> Hashable:
        """See `workbench.pipelines.recognition.batches.RunsInParallel`."""
        return self._engine.arithmetic_of(frames)

    def close(self) -> None:
        """Frees the memory."""
        self._engine.close()


def open_paraformer(path: Path, threads: int | None = None) -> tuple[ParaformerPipeline, tuple[str, ...]]:
    """Returns the recogniser of a GGUF file, and notes about the file for its users."""
    file = read_gguf(path)
    with unpacked(file) as directory:
        model = read_paraformer(directory, weights=file.path)
        cmvn, _ = read_cmvn(file, model.cmvn_file)
    network = ParaformerGraph(file, model, threads)
    return ParaformerPipeline(network.model, cmvn, network), notes(file)


def open_session(path: Path, name: str, settings: Settings) -> SpeechSession:
    """Opens a session for a GGUF file; results call the model `name`."""
    pipeline, notes = open_paraformer(path, settings.threads)
    return SpeechSession(name, "gguf", pipeline, notes)
