"""SpeechLM on ggml and llama.cpp: opens a session of a GGUF file with language model, audio tower and codec."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.speechlm.model import SpeechLmModel, read_speechlm
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.runtimes.gguf.files.unpacking import unpacked
from workbench.runtimes.gguf.llama_cpp.speechlm_network import SpeechLmNetwork
from workbench.runtimes.gguf.networks.speechlm_tower import SpeechLmTower
from workbench.runtimes.gguf.networks.xcodec import Xcodec


def open_session(path: Path, name: str, settings: Settings) -> ConversationSession:
    """Opens a session for a GGUF file; results call the model `name`."""
    file = read_gguf(path)
    with unpacked(file) as directory:
        model = read_speechlm(directory, weights=file.path)
    with ExitStack() as stack:
        audio_encoder = _audio_encoder(file, model, settings.threads)
        if audio_encoder is not None:
            stack.callback(audio_encoder.close)
        codec = _codec(file, model, settings.threads)
        if codec is not None:
            stack.callback(codec.close)
        network = SpeechLmNetwork(
            file, model.language, model.layout, audio_encoder, settings.threads, settings.kv_cache
        )
        stack.pop_all()
    return ConversationSession(name, "gguf", model, network, codec, model.audio_notes)


def _audio_encoder(file: GgufFile, model: SpeechLmModel, threads: int | None) -> SpeechLmTower | None:
    """Returns the audio tower; raises `BadInput` if it gives embeddings of another width than the language model's."""
    if model.tower is None:
        return None
    tower = SpeechLmTower(file, model.tower, threads)
    if tower.sizes.hidden != model.hidden_size:
        tower.close()
        raise BadInput(
            f"the audio tower of {file.name} gives embeddings of width {tower.sizes.hidden}; expected "
            f"{model.hidden_size}, the width of the language model"
        )
    return tower


def _codec(file: GgufFile, model: SpeechLmModel, threads: int | None) -> Xcodec | None:
    """Returns the codec; raises `BadInput` if its codebooks are not those of the vocabulary."""
    if model.codec is None:
        return None
    codec = Xcodec(file, model.layout.streams, threads)
    if codec.sizes.codes != model.layout.codes:
        codec.close()
        raise BadInput(
            f"the codec of {file.name} has {codec.sizes.codes} codes in a codebook; expected {model.layout.codes}, the "
            "number in the vocabulary"
        )
    return codec
