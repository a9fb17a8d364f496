"""Imports what sessions of this runtime need, before there is a model; `workbench.prepared.process` calls it."""

from __future__ import annotations

from typing import Any

from workbench.families.family import load
from workbench.families.table import import_cells

# What a language model and its tokenizer take from other packages, which are imported when they are used.
LANGUAGE = ("llama_cpp", "transformers:AutoTokenizer", "transformers:PreTrainedTokenizerFast")


def preload(language: bool, **_: Any) -> None:
    """Imports the modules of all families without a language model, or of those with one."""
    import_cells("gguf", language)
    for name in LANGUAGE if language else ():
        load(name)
