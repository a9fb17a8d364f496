"""Registers this project's model classes with vLLM, which calls `register` in each of its processes (entry point
vllm.general_plugins).
"""

from __future__ import annotations

MODELS = {
    "SpeechWorkbenchFunASRNano": "workbench.runtimes.vllm.models.funasr_nano:SpeechWorkbenchFunASRNano",
    "SpeechWorkbenchFireRedASR": "workbench.runtimes.vllm.models.fireredasr:SpeechWorkbenchFireRedASR",
    "SpeechWorkbenchEmbeddingLM": "workbench.runtimes.vllm.models.embedding_lm:SpeechWorkbenchEmbeddingLM",
}


def register() -> None:
    """Registers the classes by their import path; vLLM imports them when it loads one. May be called again."""
    from vllm import ModelRegistry

    known = set(ModelRegistry.get_supported_archs())
    for name, place in MODELS.items():
        if name not in known:
            ModelRegistry.register_model(name, place)
