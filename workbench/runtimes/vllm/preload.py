"""Imports the modules that sessions of this runtime need, before a model is chosen.

`workbench.prepared.process` calls it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from workbench.families.table import import_cells
from workbench.runtimes.vllm.engine.environment import environment

ENGINE = ("vllm.engine.arg_utils", "vllm.v1.engine.async_llm")


def preload(threads: int | None, eager: bool, **_: Any) -> None:
    """Imports the modules of all families and of vLLM's engine, in the environment that vLLM reads meanwhile."""
    with environment(threads, eager):
        for name in ENGINE:
            import_module(name)
    import_cells("vllm")
