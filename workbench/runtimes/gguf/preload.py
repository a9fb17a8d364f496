"""Imports what sessions of this runtime need, before there is a model; `workbench.prepared.process` calls it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from workbench.families.family import load
from workbench.families.table import OWN

# What a language model and its tokenizer take from other packages, which are imported when they are used.
LANGUAGE = ("llama_cpp", "transformers:AutoTokenizer", "transformers:PreTrainedTokenizerFast")


def preload(language: bool, **_: Any) -> None:
    """Imports the modules of all families without a language model, or of those with one."""
    for family in OWN:
        module = family.cell("gguf").module
        if module and family.has_language_model == language:
            import_module(module)
    for name in LANGUAGE if language else ():
        load(name)
