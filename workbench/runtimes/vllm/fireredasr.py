"""FireRedASR-LLM on vLLM: opens a session from a directory that `workbench.conversion.vllm_checkpoint` wrote."""

from __future__ import annotations

from pathlib import Path

from workbench.audio.cmvn import read_cmvn_ark
from workbench.core.settings import Settings
from workbench.families.speech_llm.fireredasr import read_vllm_fireredasr
from workbench.pipelines.conversation.instructed_session import InstructedSession
from workbench.pipelines.features import Features
from workbench.pipelines.recognition.fireredasr import STAGES, FireRedPromptFormat
from workbench.runtimes.vllm.recogniser import open_speech


def open_session(directory: Path, name: str, settings: Settings) -> InstructedSession:
    """Opens a session for the model in `directory`; results call the model `name`."""
    model = read_vllm_fireredasr(directory)
    features = Features(model.frontend, read_cmvn_ark(model.cmvn_file), STAGES)
    options = ("dither", "cmvn", "length_rule")
    return open_speech(FireRedPromptFormat(model), features, options, directory, name, settings)
