"""Fun-ASR-Nano on vLLM: opens a session from a directory that `workbench.conversion.vllm_checkpoint` wrote."""

from __future__ import annotations

from pathlib import Path

from workbench.audio.cmvn import read_am_mvn
from workbench.core.settings import Settings
from workbench.families.speech_llm.funasr_nano import read_vllm_funasr_nano
from workbench.pipelines.conversation.instructed_session import InstructedSession
from workbench.pipelines.features import Features
from workbench.pipelines.recognition.funasr_nano import NanoPromptFormat
from workbench.runtimes.vllm.recogniser import open_speech


def open_session(directory: Path, name: str, settings: Settings) -> InstructedSession:
    """Opens a session for the model in `directory`; results call the model `name`."""
    model = read_vllm_funasr_nano(directory)
    features = Features(model.frontend, read_am_mvn(model.cmvn_file) if model.cmvn_file else None)
    return open_speech(NanoPromptFormat(model), features, ("dither", "cmvn"), directory, name, settings)
