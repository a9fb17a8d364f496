"""Registers this project's model classes with vLLM, which calls `register` in each of its processes (entry point
vllm.general_plugins).
"""

from __future__ import annotations

from workbench.families import FAMILIES, load


def models() -> dict[str, str]:
    """Returns the classes of all families: from the architecture in config.json to the class, `module:Class`."""
    return {name: place for family in FAMILIES.values() for name, place in family.vllm.classes.items()}


def configurations() -> dict[str, str]:
    """Returns the classes that set vLLM's configuration: from the architecture to the class, `module:Class`."""
    return {
        name: family.vllm.configuration
        for family in FAMILIES.values()
        if family.vllm.configuration
        for name in family.vllm.classes
    }


def register() -> None:
    """Registers the classes by their import path; vLLM imports them when it loads one. May be called again."""
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    supported = set(ModelRegistry.get_supported_archs())
    for name, place in models().items():
        if name not in supported:
            ModelRegistry.register_model(name, place)
    for name, place in configurations().items():
        MODELS_CONFIG_MAP.setdefault(name, load(place))
