"""Fun-ASR-Nano on ggml and llama.cpp: the encoder as a graph, and a session for a GGUF file or for FunASR's pair of
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workbench.core.settings import Settings
from workbench.families.speech_llm.funasr_nano import (
    CTC_PREFIXES,
    CTC_TOKENS,
    CtcBranch,
    FunasrNanoModel,
    audio_tokens,
    read_funasr_nano,
    with_vocabulary,
)
from workbench.formats.gguf_file import GgufFile
from workbench.pipelines.conversation.instructed_session import InstructedSession
from workbench.pipelines.recognition.funasr_nano import NanoAudioEncoder
from workbench.pipelines.recognition.nano_search import NanoPipeline
from workbench.runtimes.gguf.files.unpacking import notes, read_gguf_pair, unpacked
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.llama_cpp.language import open_language
from workbench.runtimes.gguf.networks import output_layer
from workbench.runtimes.gguf.networks.cmvn import read_cmvn
from workbench.runtimes.gguf.networks.nano_adaptor import adapt, transform
from workbench.runtimes.gguf.networks.sanm import encode, encoder_input
from workbench.trace.recorder import Recorder

ENCODER, ADAPTOR, CTC_DECODER = "audio_encoder", "audio_adaptor", "ctc_decoder"


class NanoGraph:
    """The loaded encoder, adaptor and CTC branch with numpy arrays in and out.

    It implements `workbench.pipelines.recognition.funasr_nano.NanoNetwork` and `nano_search.CtcNetwork`.

    Raises `BadInput` if the file's tensors do not match its configuration. `branch` is the CTC branch, or the reason
    why it cannot be used.
    """

    def __init__(self, file: GgufFile, model: FunasrNanoModel, threads: int | None = None):
        self.encoder = model.encoder
        self.adaptor = model.adaptor
        self._engine = GraphRunner(file, threads)
        self._engine.check(lambda g: self._build(g, np.zeros((2, self.encoder.input_size), dtype=np.float32)))
        self.branch = ctc_branch(file, model)

    def _build(self, g: Graph, features: np.ndarray) -> dict[str, Tensor]:
        x = g.input(encoder_input(features, self.encoder))
        encoded = encode(g, x, g.scope / ENCODER, self.encoder)
        return {"speech": adapt(g, encoded, g.scope / ADAPTOR, self.adaptor, audio_tokens(len(features), self.adaptor))}

    def embed_audio(self, features: Sequence[np.ndarray], recorder: Recorder | None) -> tuple[np.ndarray, np.ndarray]:
        """See `NanoNetwork.embed_audio`; the rows of shorter chunks are padded with zeros."""
        chunk_rows = []
        for number, row in enumerate(features):
            chunk_recorder = recorder if number == 0 else None
            chunk_rows.append(self._engine.run(lambda g, row=row: self._build(g, row), chunk_recorder)["speech"])  # type: ignore[misc]
        counts = np.array([len(row) for row in chunk_rows])
        speech = np.zeros((len(chunk_rows), counts.max(), self.adaptor.llm_dim), dtype=np.float32)
        for place, row in zip(speech, chunk_rows, strict=True):
            place[: len(row)] = row
        return speech, counts

    def ctc_logits(self, features: np.ndarray, recorder: Recorder | None) -> np.ndarray:
        """See `workbench.pipelines.recognition.nano_search.CtcNetwork.ctc_logits`."""
        branch = self.branch
        assert isinstance(branch, CtcBranch)

        def build(g: Graph) -> dict[str, Tensor]:
            encoded = encode(g, g.input(encoder_input(features, self.encoder)), g.scope / ENCODER, self.encoder)
            return {"decoded": transform(g, encoded, g.scope / CTC_DECODER, branch.decoder, "ctc")}

        decoded = self._engine.run(build, recorder)["decoded"]
        layer = Scope(self._engine.weights) / "ctc" / "ctc_lo"
        return output_layer.logits(self._engine, decoded, layer, branch.count)

    def close(self) -> None:
        """Frees the memory."""
        self._engine.close()


def ctc_branch(file: GgufFile, model: FunasrNanoModel) -> CtcBranch | str:
    """Returns the CTC branch with its vocabulary, or the reason why the file's branch cannot be used."""
    if not any(name.startswith(CTC_PREFIXES) for name in file.tensors):
        return (
            f"{file.name} holds none of its tensors; convert a checkpoint that has the branch and its "
            f"{CTC_TOKENS}, in the layout of this project"
        )
    return with_vocabulary(model.ctc)  # from a file that is unpacked only now


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
    pipeline = NanoPipeline(encoder, language, network.branch, network)
    return InstructedSession(name, "gguf", pipeline, (*notes(file), *language.notes))
