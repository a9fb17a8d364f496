"""What the sessions of all families share: an engine's options from a session's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.opening import Settings
from workbench.runtimes.vllm.engine import EngineOptions


def engine_options(directory: Path, name: str, settings: Settings, **arguments: Any) -> EngineOptions:
    """How to start the engine of a session; `arguments` are vLLM's own, of the family."""
    return EngineOptions(
        model=directory,
        name=name,
        dtype=settings.dtype,
        max_length=settings.max_length,
        kv_gigabytes=settings.kv_gigabytes,
        tensor_parallel=settings.tensor_parallel,
        eager=settings.eager,
        threads=settings.threads,
        arguments=arguments,
    )
