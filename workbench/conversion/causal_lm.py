"""A language model as an ordinary llama.cpp file; this project's own keys hold the checkpoint's small files.

A Fun-ASR-Nano directory gives the file of its language model.
"""

from __future__ import annotations

from pathlib import Path

from workbench.conversion.files import LANGUAGE_FILES, embedded_files, small_files
from workbench.conversion.language import LanguagePart, language_name, plan_language
from workbench.conversion.language_weights import read_language_weights
from workbench.conversion.plan import Plan
from workbench.conversion.tensors import tensor_rows
from workbench.core.errors import BadInput
from workbench.core.phrases import name_in_folder
from workbench.families.language.causal_lm import CausalLmModel, read_causal_lm
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions
from workbench.runtimes.pytorch.funasr_nano import read_parts


def plans(directory: Path, layout: str) -> list[Plan]:
    """Returns the plan of a model directory; raises `BadInput` for a bad directory, and for unsupported models."""
    if layout == "funasr":
        raise BadInput(f"FunASR has no layout for {directory.name}, a language model; leave --layout out")
    model = read_causal_lm(directory)
    language_part = _language_part(model)
    files = small_files(model.language.directory, LANGUAGE_FILES)
    values = {**language_name(directory), **language_part.values, **embedded_files("causal_lm", files)}
    return [Plan(language_part.architecture, values, language_part.tensors, notes=language_part.notes)]


def _language_part(model: CausalLmModel) -> LanguagePart:
    language = model.language
    if model.speech is None:
        tensors, regions = read_language_weights(language.directory)
        source_name = language.directory.name
    else:
        weights = model.speech.checkpoint.weights
        tensors = read_parts(model.speech)[1]
        regions, source_name = mapped_regions(weights), name_in_folder(weights)
    return plan_language(
        language, model.tokenizer, tensors, lambda _, tensor: tensor_rows(tensor, regions), source_name
    )
