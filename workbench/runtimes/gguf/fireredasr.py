"""FireRedASR-LLM on ggml and llama.cpp: the encoder and adapter as a graph, and a session for a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.audio.cmvn import read_cmvn_ark
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.speech_llm.fireredasr import FireRedAsrModel, read_fireredasr
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.pipelines.conversation.instructed_session import InstructedSession
from workbench.pipelines.recognition.fireredasr import FireRedAudioEncoder
from workbench.pipelines.recognition.speech_language import SpeechLanguagePipeline
from workbench.runtimes.gguf.files.unpacking import unpacked
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Tensor
from workbench.runtimes.gguf.llama_cpp.language import open_language
from workbench.runtimes.gguf.networks.conformer import EncoderInput, adapt, encode, encoder_input
from workbench.trace.recorder import Recorder

ARGUMENTS = "workbench.arguments"


class FireRedGraph:
    """The loaded encoder and adapter with numpy arrays in and out; implements
    `workbench.pipelines.recognition.fireredasr.FireRedNetwork`.

    Raises `BadInput` if the file's tensors do not match its arguments.
    """

    def __init__(self, file: GgufFile, model: FireRedAsrModel, threads: int | None = None):
        self.encoder = model.encoder
        self.downsample_rate = model.downsample_rate
        self.width = model.language.hidden_size
        self._engine = GraphRunner(file, threads)
        shortest = np.zeros((4 * model.downsample_rate, self.encoder.idim), dtype=np.float32)
        self._engine.check(lambda g: self._build(g, encoder_input(shortest, 1, self.encoder)))

    def _build(self, g: Graph, sound: EncoderInput) -> dict[str, Tensor]:
        encoded = encode(g, sound, g.scope / "encoder", self.encoder)
        return {"speech": adapt(g, encoded, g.scope / "encoder_projector", self.width, self.downsample_rate)}

    def embed_audio(
        self, features: Sequence[np.ndarray], valid: Sequence[int], recorder: Recorder | None
    ) -> np.ndarray:
        """See `FireRedNetwork.embed_audio`; the rows of shorter chunks are padded with zeros."""
        chunk_rows = []
        for number, (row, count) in enumerate(zip(features, valid, strict=True)):
            sound, chunk_recorder = encoder_input(row, count, self.encoder), recorder if number == 0 else None
            chunk_rows.append(self._engine.run(lambda g, sound=sound: self._build(g, sound), chunk_recorder)["speech"])  # type: ignore[misc]
        speech = np.zeros((len(chunk_rows), max(map(len, chunk_rows)), self.width), dtype=np.float32)
        for place, row in zip(speech, chunk_rows, strict=True):
            place[: len(row)] = row
        return speech

    def close(self) -> None:
        """Frees the memory."""
        self._engine.close()


def read_model(file: GgufFile) -> tuple[FireRedAsrModel, Any]:
    """Returns the model that a file describes, and its CMVN; raises `BadInput` for missing or inconsistent parts."""
    package, encoder = read_arguments(file)
    with unpacked(file) as directory:
        model = read_fireredasr(directory, package, encoder, weights=file.path)
        return model, read_cmvn_ark(model.cmvn_file)


def read_arguments(file: GgufFile) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns the `args` of the two torch files that a GGUF file was made from; raises `BadInput` if it has none."""
    try:
        arguments = json.loads(file.text(ARGUMENTS))
    except ValueError as error:
        raise BadInput(f"{ARGUMENTS} in {file.name} is not JSON: {error}") from error
    packages = [arguments.get(key) if isinstance(arguments, dict) else None for key in ("model", "encoder")]
    first, second = packages
    if not isinstance(first, dict) or not isinstance(second, dict):
        raise BadInput(f"{ARGUMENTS} in {file.name} has no mappings model and encoder; convert the model again")
    return first, second


def open_session(path: Path, name: str, settings: Settings) -> InstructedSession:
    """Opens a session for a GGUF file; results call the model `name`."""
    file = read_gguf(path)
    model, cmvn = read_model(file)
    network = FireRedGraph(file, model, settings.threads)
    try:
        language = open_language(file, model.language, settings.threads, settings.kv_cache)
    except BaseException:
        network.close()
        raise
    encoder = FireRedAudioEncoder(model, cmvn, network)
    return InstructedSession(name, "gguf", SpeechLanguagePipeline(encoder, language))
