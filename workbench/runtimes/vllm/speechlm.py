"""SpeechLM on vLLM: opens a session from a directory that `workbench.conversion.vllm_checkpoint` wrote.

Language model and audio tower are in the engine, where several conversations are computed at once. The codec turns
their rows into speech here, with PyTorch, which vLLM brings along.
"""

from __future__ import annotations

from pathlib import Path

from workbench.core.errors import Unavailable
from workbench.core.settings import Settings
from workbench.families.family import load
from workbench.families.speechlm.model import CODEC_ON_TORCH, read_speechlm
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.runtimes.vllm.session import started_engine
from workbench.runtimes.vllm.streams.network import EngineNetwork, engine_steps
from workbench.runtimes.vllm.streams.shared_codec import SharedCodec

MAX_RECORDINGS = 64  # in a conversation


def open_session(directory: Path, name: str, settings: Settings) -> ConversationSession:
    """Opens a session for the model in `directory`; results call the model `name`."""
    if settings.tensor_parallel > 1:
        raise Unavailable(
            f"tensor_parallel is {settings.tensor_parallel}, and a SpeechLM on vLLM has its codec streams on one "
            "device; set it to 1"
        )
    model = read_speechlm(directory)
    engine = started_engine(
        directory,
        name,
        settings,
        limit_mm_per_prompt={"audio": MAX_RECORDINGS if model.tower else 0},
    )
    try:
        codec = load(CODEC_ON_TORCH)(model)
    except BaseException:
        engine.close()
        raise
    session = ConversationSession(
        name,
        "vllm",
        model,
        EngineNetwork(model, engine),
        SharedCodec(codec) if codec is not None else None,
        model.audio_notes,
        engine_steps,
    )
    session.log = engine.log
    return session
