"""The plain causal language model on PyTorch: opens a session from a directory."""

from __future__ import annotations

from pathlib import Path

from workbench.core.settings import Settings
from workbench.families.language.causal_lm import read_causal_lm
from workbench.pipelines.text.causal_lm import CausalLm
from workbench.pipelines.text.text_session import TextSession
from workbench.runtimes.pytorch.funasr_nano import open_nano_language, read_parts
from workbench.runtimes.pytorch.language_models.language import language_dtype, open_language
from workbench.runtimes.pytorch.numerics.device import prepare


def open_session(directory: Path, name: str, settings: Settings) -> TextSession:
    """Opens a session for the language model in `directory`; results call the model `name`."""
    device = prepare(settings)
    model = read_causal_lm(directory)
    if model.speech is None:
        dtype = language_dtype(directory, settings.dtype)
        language = open_language(model.language, device, dtype, stepwise=settings.stepwise)
    else:
        # The audio encoder's tensors are left out on purpose.
        _, tensors = read_parts(model.speech)
        language = open_nano_language(model.speech, tensors, device, settings.dtype, settings.stepwise)
    return TextSession(name, "pytorch", CausalLm(model, language))
