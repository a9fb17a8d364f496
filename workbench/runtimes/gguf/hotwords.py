"""The hotword branch of a SeACo checkpoint on ggml: changes logits by a list of hotwords.

Shi et al., "SeACo-Paraformer", ICASSP 2024. Axes: N tokens, H hotwords, D width, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from workbench.core.softmax import log_softmax
from workbench.families.sanm.seaco import FILTER_LAYERS, FILTER_STACK, FILTERED, STACKS, Hotwords, SeacoConfig
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks import output_layer, sanm_decoder
from workbench.runtimes.gguf.networks.attention_stages import attention_weights
from workbench.runtimes.gguf.networks.bias_encoder import BiasEncoder
from workbench.trace.recorder import Recorder


class FirstPass(NamedTuple):
    """What the first decoder gives for a recording."""

    embeddings: np.ndarray  # [N, D], acoustic
    hidden: np.ndarray  # [N, D], its output
    logits: np.ndarray  # [N, V]


class HotwordBias:
    """The branch in a file; raises `BadInput` if its tensors do not match the configuration."""

    def __init__(self, file: GgufFile, config: SeacoConfig, vocabulary: int, engine: GraphRunner):
        self.config, self.vocabulary, self._engine = config, vocabulary, engine
        self._encoder = BiasEncoder(file, config, vocabulary)
        self._last: tuple[Hotwords, np.ndarray] | None = None  # one list of hotwords serves many recordings

    def parts(self, g: Graph, x: Tensor) -> dict[str, Tensor]:
        """Returns the graph's parts over x [N, D] as acoustic embeddings, hidden states and hotwords, for a check."""
        attended = sanm_decoder.decode(g, x, x, g.scope / "seaco_decoder", self.config.decoder)
        parts = output_layer.logit_parts(g, attended, g.scope / "hotword_output_layer", self.vocabulary)
        return {f"hotword {name}": part for name, part in parts.items()}

    def __call__(self, decoded: FirstPass, hotwords: Hotwords, recorder: Recorder | None) -> np.ndarray:
        """Returns log-probabilities [N, V]. A token for which the branch names a hotword has the branch's row; others
        have the first decoder's.
        """
        vectors = _put(recorder, "bias_encoder.output", self._vectors(hotwords))
        vectors = self._select(vectors, decoded.hidden, recorder)
        first, second = (
            self._decode(vectors, x, stack, recorder)
            for stack, x in zip(STACKS, (decoded.embeddings, decoded.hidden), strict=True)
        )
        decoder_log_probs = log_softmax(_put(recorder, "seaco.decoder.logits", decoded.logits))
        layer = Scope(self._engine.weights) / "hotword_output_layer"
        logits = output_layer.logits(self._engine, first + second, layer, self.vocabulary)
        biased = log_softmax(_put(recorder, "seaco.logits", logits))
        has_none = biased.argmax(axis=1) == self.config.no_bias
        return np.where(has_none[:, None], decoder_log_probs, biased)

    def _vectors(self, hotwords: Hotwords) -> np.ndarray:
        if self._last is None or self._last[0] != hotwords:
            self._last = hotwords, self._encoder(hotwords)
        return self._last[1]

    def _select(self, vectors: np.ndarray, hidden: np.ndarray, recorder: Recorder | None) -> np.ndarray:
        """Returns the vectors that a recording keeps: those that its tokens attend to most, and the end of the list."""
        if len(vectors) <= FILTERED:
            return vectors
        config = self.config.decoder

        def layers(g: Graph) -> dict[str, Tensor]:
            x, memory, scope = g.input(hidden), g.input(vectors), g.scope / "seaco_decoder"
            return {"x": sanm_decoder.attending_layers(g, x, memory, scope, config, FILTER_STACK, FILTER_LAYERS)}

        attended = self._engine.run(layers, recorder)["x"]

        def weights(g: Graph) -> dict[str, Tensor]:
            layer = g.scope / "seaco_decoder" / "decoders" / FILTER_LAYERS
            _, h = sanm_decoder.before_attention(g, g.input(attended), layer, config, FILTER_STACK)
            q, k = sanm_decoder.queries_and_keys(g, h, g.input(vectors), layer / "src_attn")
            return {"weights": attention_weights(g, q, k, config.attention_heads)}

        scores = self._engine.run(weights)["weights"].sum(axis=(0, 1))
        scores = _put(recorder, f"{FILTER_STACK}.scores", scores)
        best = np.argsort(-scores, kind="stable")[: min(FILTERED, len(vectors) - 1)]
        return np.concatenate([vectors[best], vectors[-1:]])

    def _decode(self, vectors: np.ndarray, x: np.ndarray, stack: str, recorder: Recorder | None) -> np.ndarray:
        """Returns one pass of the second decoder over x [N, D], [N, D]."""

        def decoder(g: Graph) -> dict[str, Tensor]:
            scope, config = g.scope / "seaco_decoder", self.config.decoder
            return {"x": sanm_decoder.decode(g, g.input(x), g.input(vectors), scope, config, stack)}

        return self._engine.run(decoder, recorder)["x"]


def _put(recorder: Recorder | None, stage: str, value: np.ndarray) -> np.ndarray:
    return recorder.put(stage, value) if recorder else value
