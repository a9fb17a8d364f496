"""Xcodec on ggml: codes to samples, and recordings to codes.

It computes in float32 whatever the type of the file, except for HuBERT's linear layers. This file knows no language
model.
"""

from __future__ import annotations

import math

import numpy as np

from workbench.core.errors import BadInput
from workbench.families.speechlm.gguf import CODEC, read_codec_sizes
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks.xcodec_decoder import decode, decoder_receptive_field, values_of_frame
from workbench.runtimes.gguf.networks.xcodec_encoder import Encoder
from workbench.speech.codec_input import check_codes, of_length, whole_frames
from workbench.trace.recorder import Recorder

MAX_VALUES = 1 << 24  # values that a convolution reads at once: 64 MiB, whatever the length of an answer
MAX_FRAMES = 1000  # frames that are decoded at once


class Xcodec:
    """A loaded codec; implements `workbench.speech.network.Codec`.

    Args:
        streams: how many of its codebooks the language model uses, from the first on.
        threads: None for one per processor that this process may use.

    Raises `BadInput` if the file's keys and tensors do not fit together, or if it has fewer codebooks than streams.
    """

    def __init__(self, file: GgufFile, streams: int, threads: int | None = None):
        self.sizes = sizes = read_codec_sizes(file)
        self.streams = streams
        self.sample_rate = sizes.sample_rate  # Hz
        self.hop = math.prod(sizes.upsampling)  # samples per frame
        self.receptive_field = decoder_receptive_field(sizes)
        self._part = min(max(MAX_VALUES // values_of_frame(sizes), 1), MAX_FRAMES)
        if sizes.codebooks < streams:
            raise BadInput(
                f"the codec of {file.name} has {sizes.codebooks} codebooks; the language model has {streams} "
                "streams; expected at least as many codebooks"
            )
        self._engine = GraphRunner(file, threads)
        scope = Scope(self._engine.weights) / CODEC.rstrip(".")
        width = sizes.acoustic_width + sizes.semantic_width
        self._codebooks = [
            (scope / "codebooks" / number).values("weight", (sizes.codes, width)) for number in range(streams)
        ]
        self._engine.check(lambda g: self._latents(g, np.zeros((1, width), dtype=np.float32)))
        self._engine.check(lambda g: self._samples(g, np.zeros((1, sizes.acoustic_width), dtype=np.float32)))
        self._encoder = Encoder(file, self._engine, sizes, self._codebooks) if sizes.encodes else None

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Returns codes [frames, streams] of float32 samples [n] at `sample_rate`; an incomplete last frame is left
        out.

        Raises `BadInput` for less than one frame, or if the file has no encoder.
        """
        trimmed = whole_frames(samples, self.hop, self.sample_rate)
        if self._encoder is None:
            raise BadInput(
                f"{self._engine.weights.file.name} has no encoder of the codec, so it cannot read the assistant's "
                "earlier speech from samples; give the codec streams of that answer"
            )
        return of_length(self._encoder(trimmed), len(trimmed) // self.hop)

    def decode(self, codes: np.ndarray, recorder: Recorder | None = None) -> np.ndarray:
        """Returns float32 samples [frames * hop] of codes [frames, streams].

        A recorder gets the stages `codec.codes`, `codec.latents` [frames, width], which enter the decoder, and
        `codec.audio`. Raises `BadInput` for codes that the codebooks do not have.
        """
        if not len(codes):
            return np.zeros(0, dtype=np.float32)
        check_codes(codes, self.streams, self.sizes.codes)
        record = recorder.put if recorder else _unchanged
        codes = np.asarray(record("codec.codes", codes), dtype=codes.dtype)
        summed = self._codebooks[0][codes[:, 0]]
        for number in range(1, codes.shape[1]):
            summed = summed + self._codebooks[number][codes[:, number]]
        latents = record("codec.latents", self._engine.run(lambda g: self._latents(g, summed))["latents"])
        return record("codec.audio", self._in_parts(latents))

    def _in_parts(self, latents: np.ndarray) -> np.ndarray:
        """Decodes one part at a time, together with the frames on both sides that change its samples."""
        frames, (before, after) = len(latents), self.receptive_field
        audio = np.empty(frames * self.hop, dtype=np.float32)
        step = self._part
        for first in range(0, frames, step):
            last, start = min(first + step, frames), max(first - before, 0)
            part = latents[start : last + after]
            samples = self._engine.run(lambda g, part=part: self._samples(g, part))["samples"].reshape(-1)  # type: ignore[misc]
            audio[first * self.hop : last * self.hop] = samples[(first - start) * self.hop : (last - start) * self.hop]
        return audio

    def _latents(self, g: Graph, summed: np.ndarray) -> dict[str, Tensor]:
        layer, width = g.scope / "codec" / "fc2", self.sizes.acoustic_width
        product = g.matmul(layer.array("weight", (width, summed.shape[1])), g.input(summed))
        return {"latents": g.add(product, layer.vector("bias", width))}

    def _samples(self, g: Graph, latents: np.ndarray) -> dict[str, Tensor]:
        return {"samples": decode(g, g.input(latents), g.scope / "codec" / "decoder", self.sizes)}

    def close(self) -> None:
        """Frees the memory."""
        self._engine.close()


def _unchanged(stage: str, value: np.ndarray) -> np.ndarray:
    return value
