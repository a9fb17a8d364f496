"""A language model as a directory for vLLM: taken from a Fun-ASR-Nano checkpoint, or from torch files.

A directory that vLLM loads directly needs no conversion; see `loads_unconverted`.
"""

from __future__ import annotations

from pathlib import Path

from workbench.conversion.language_weights import read_language_weights
from workbench.conversion.vllm_checkpoint.directory import VllmCheckpoint
from workbench.conversion.vllm_checkpoint.funasr_nano import language_part
from workbench.conversion.vllm_checkpoint.language import language_tensors, prefixed
from workbench.families.language.causal_lm import read_causal_lm


def plan(directory: Path) -> VllmCheckpoint:
    """Plans the directory of a language model; raises `BadInput` for a bad model."""
    model = read_causal_lm(directory)
    language = model.language
    if model.speech is not None:
        tensors, changes, source_name = language_part(model.speech)
    else:
        source_name = language.directory.name
        weights, regions = read_language_weights(language.directory)
        tensors, changes = language_tensors(language, weights, prefixed("", regions, source_name), source_name)
    return VllmCheckpoint("causal_lm", language, tensors, source_name, config=changes, sources=(language.directory,))
