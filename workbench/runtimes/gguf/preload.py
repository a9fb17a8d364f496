"""Imports the modules that sessions of this runtime need, before a model is chosen.

`workbench.prepared.process` calls it.
"""

from __future__ import annotations

from typing import Any

from workbench.families.family import load
from workbench.families.table import import_cells

# Parts of other packages that a language model and its tokenizer need; those packages import them at their first use.
LANGUAGE = ("gguf", "llama_cpp", "transformers:AutoTokenizer", "transformers:PreTrainedTokenizerFast")


def preload(language: bool, **_: Any) -> None:
    """Imports the modules of all families without a language model, or of those with one."""
    import_cells("gguf", language)
    for name in LANGUAGE if language else ():
        load(name)
