"""Registers this project's classes with vLLM as vLLM asks for it, and looks at each; exit status 1 where one fails."""

from __future__ import annotations

import sys
from importlib import import_module

CLASSES = "workbench.runtimes.vllm.models"


def main() -> None:
    """Registers twice, then imports every class by the name that vLLM has for it."""
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from workbench.runtimes.vllm.plugin import configurations, models, register

    assert not {*models()} & {*ModelRegistry.get_supported_archs()}, "they are registered already"
    for name in [name for name in sys.modules if name.startswith(CLASSES)]:
        del sys.modules[name]  # a prepared process has imported them
    register()
    register()
    assert {*models()} <= {*ModelRegistry.get_supported_archs()}
    assert not [name for name in sys.modules if name.startswith(CLASSES)], "they are imported without need"
    assert configurations().keys() <= models().keys()
    for name, place in configurations().items():
        assert f"{MODELS_CONFIG_MAP[name].__module__}:{MODELS_CONFIG_MAP[name].__name__}" == place
    for name, place in models().items():
        module, _, found = place.partition(":")
        assert found == name and getattr(import_module(module), name).__name__ == name


if __name__ == "__main__":
    main()
