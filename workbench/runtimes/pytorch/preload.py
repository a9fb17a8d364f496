"""Imports the modules that sessions of this runtime need, before a model is chosen.

`workbench.prepared.process` calls it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from workbench.core.packages import CONVERSION, missing_packages
from workbench.families.table import import_cells

# What a language model, its tokenizer and its codec take from transformers, and imports only when it is used.
LANGUAGE = (
    "workbench.runtimes.pytorch.language_models.growing_cache",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe",
    "transformers.models.xcodec.modeling_xcodec",
)
WRITER = "workbench.conversion.writer"  # conversions to GGUF are forked from the same processes


def preload(language: bool, **_: Any) -> None:
    """Imports the modules of all families without a language model, or of those with one."""
    import_cells("pytorch", language)
    for name in LANGUAGE if language else ():
        import_module(name)
    if not missing_packages(CONVERSION):
        import_module(WRITER)
