"""SpeechLM on vLLM: opens a session from a directory that `workbench.conversion.vllm_checkpoint` wrote.

Language model and audio tower are in the engine, where several conversations are computed at once. The codec turns
their rows into speech here, with PyTorch, which vLLM brings along.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from workbench.core.errors import Unavailable
from workbench.core.settings import Settings
from workbench.families.family import load
from workbench.families.speechlm import CODEC_ON_TORCH, read_speechlm
from workbench.pipelines.conversation_session import ConversationSession
from workbench.runtimes.vllm.session import started_engine
from workbench.runtimes.vllm.streams.asked import width
from workbench.runtimes.vllm.streams.network import EngineNetwork, engine_steps
from workbench.speech.network import Codec
from workbench.trace.recorder import Recorder

WORKER = "workbench.runtimes.vllm.streams.worker.SpeechWorker"
SCHEDULER = "workbench.runtimes.vllm.streams.scheduler.PairScheduler"
MOST_RECORDINGS = 64  # in a conversation


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
        limit_mm_per_prompt={"audio": MOST_RECORDINGS if model.tower else 0},
        max_logprobs=width(model.layout, evidence=True),  # by which the streams come back
        worker_cls=WORKER,
        scheduler_cls=SCHEDULER,
        async_scheduling=False,  # the scheduler must know what a step has chosen before it plans the next one
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
        _OneAtATime(codec) if codec is not None else None,
        model.audio_notes,
        engine_steps,
    )
    session.log = engine.log
    return session


class _OneAtATime(Codec):
    """A codec for several threads, which decodes for one of them at a time."""

    def __init__(self, codec: Codec):
        self._codec = codec
        self._lock = threading.Lock()
        self.sample_rate, self.hop = codec.sample_rate, codec.hop

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """See `Codec.encode`."""
        with self._lock:
            return self._codec.encode(samples)

    def decode(self, codes: np.ndarray, recorder: Recorder | None = None) -> np.ndarray:
        """See `Codec.decode`."""
        with self._lock:
            return self._codec.decode(codes, recorder)

    @property
    def reach(self) -> tuple[int, int]:
        """See `Codec.reach`."""
        return self._codec.reach
