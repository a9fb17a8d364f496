"""Common code of all families' sessions: starts an engine with a session's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.core.settings import Settings
from workbench.runtimes.vllm.engine.engine import Engine, EngineOptions


def started_engine(directory: Path, name: str, settings: Settings, **arguments: Any) -> Engine:
    """Starts the engine of a session; `arguments` are the family's arguments of vLLM. Raises the same errors as
    `Engine.start`.
    """
    engine = Engine(
        EngineOptions(
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
    )
    try:
        engine.start()
    except BaseException:
        engine.close()
        raise
    return engine
