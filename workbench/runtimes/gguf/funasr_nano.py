"""Fun-ASR-Nano on ggml and llama.cpp: the encoder as a graph, and a session for a GGUF file or for FunASR's pair of
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workbench.core.settings import Settings
from workbench.families.funasr_nano import FunasrNanoModel, audio_tokens, read_funasr_nano
from workbench.formats.gguf_file import GgufFile
from workbench.pipelines.funasr_nano import NanoAudioEncoder
from workbench.pipelines.instructed_session import InstructedSession
from workbench.pipelines.speech_language import SpeechLanguagePipeline
from workbench.runtimes.gguf.cmvn import read_cmvn
from workbench.runtimes.gguf.graph import Graph, GraphRunner
from workbench.runtimes.gguf.language import open_language
from workbench.runtimes.gguf.nano_adaptor import adapt
from workbench.runtimes.gguf.sanm import encode, encoder_input
from workbench.runtimes.gguf.unpacking import notes, read_gguf_pair, unpacked
from workbench.runtimes.gguf.weights import Tensor
from workbench.trace.recorder import Recorder

ENCODER, ADAPTOR = "audio_encoder", "audio_adaptor"


class NanoGraph:
    """The loaded encoder and adaptor with numpy arrays in and out; implements
    `workbench.pipelines.funasr_nano.NanoNetwork`.

    Raises `BadInput` if the file's tensors do not match its configuration.
    """

    def __init__(self, file: GgufFile, model: FunasrNanoModel, threads: int | None = None):
        self.encoder = model.encoder
        self.adaptor = model.adaptor
        self._engine = GraphRunner(file, threads)
        self._engine.check(lambda g: self._build(g, np.zeros((2, self.encoder.input_size), dtype=np.float32)))

    def _build(self, g: Graph, features: np.ndarray) -> dict[str, Tensor]:
        x = g.input(encoder_input(features, self.encoder))
        encoded = encode(g, x, g.scope / ENCODER, self.encoder)
        return {"speech": adapt(g, encoded, g.scope / ADAPTOR, self.adaptor, audio_tokens(len(features), self.adaptor))}

    def hear(self, features: Sequence[np.ndarray], recorder: Recorder | None) -> tuple[np.ndarray, np.ndarray]:
        """See `NanoNetwork.hear`; the rows of shorter chunks are padded with zeros."""
        computed = []
        for number, row in enumerate(features):
            wanted = recorder if number == 0 else None
            computed.append(self._engine.run(lambda g, row=row: self._build(g, row), wanted)["speech"])  # type: ignore[misc]
        counts = np.array([len(row) for row in computed])
        speech = np.zeros((len(computed), counts.max(), self.adaptor.llm_dim), dtype=np.float32)
        for place, row in zip(speech, computed, strict=True):
            place[: len(row)] = row
        return speech, counts

    def close(self) -> None:
        """Frees the memory."""
        self._engine.close()


def open_session(path: Path, name: str, settings: Settings) -> InstructedSession:
    """Opens a session for a GGUF file; results call the model `name`.

    For FunASR's encoder file, the settings name the file of the language model; by default it is the one beside it.
    """
    file, language_file = read_gguf_pair(path, settings.language_file)
    with unpacked(file, language_file) as directory:
        model = read_funasr_nano(directory, weights=file.path)
        cmvn, _ = read_cmvn(file, model.cmvn_file)
    network = NanoGraph(file, model, settings.threads)
    try:
        language = open_language(language_file, model.language, settings.threads, settings.kv_cache)
    except BaseException:
        network.close()
        raise
    encoder = NanoAudioEncoder(model, cmvn, network)
    return InstructedSession(name, "gguf", SpeechLanguagePipeline(encoder, language), (*notes(file), *language.notes))
