"""The plain causal language model on PyTorch: from a directory to a session."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np

from workbench.decoding.generation import decoding_of
from workbench.families.causal_lm import CausalLmModel, CausalLmOptions, prompt_ids, read_causal_lm
from workbench.generation_session import TextSession
from workbench.opening import Settings
from workbench.runtimes.pytorch.device import prepare
from workbench.runtimes.pytorch.funasr_nano import open_nano_language, split_language
from workbench.runtimes.pytorch.language import LanguageModel, language_dtype, open_language
from workbench.runtimes.pytorch.tap import Recorder
from workbench.runtimes.pytorch.weights import read_state_dict
from workbench.session import Prompt, StageFilter


class CausalLm:
    """A loaded language model as a writer (see `workbench.generation_session`)."""

    options_class = CausalLmOptions

    def __init__(self, model: CausalLmModel, language: LanguageModel):
        self.model = model
        self.language = language
        self.stop_ids = model.stop_ids

    @property
    def dtype(self) -> str:
        """Of its arithmetic."""
        return self.language.dtype

    def prompt_ids(self, prompt: Prompt, options: CausalLmOptions) -> list[int]:
        """As `Writer.prompt_ids`."""
        return prompt_ids(self.model, prompt, options)

    def write(self, ids: Sequence[int], options: CausalLmOptions) -> Generator[int, None, None]:
        """As `Writer.write`."""
        for tokens in self.language.generate(self.language.prompt([ids]), decoding_of(options, self.stop_ids)):
            yield int(tokens[0])

    def text_of(self, ids: Sequence[int]) -> str:
        """As `Writer.text_of`."""
        return self.model.tokenizer.text(ids)

    def trace(self, ids: Sequence[int], wanted: StageFilter) -> dict[str, np.ndarray]:
        """As `Writer.trace`."""
        recorder = Recorder(wanted)
        self.language.trace(self.language.prompt([ids]), recorder)
        return recorder.stages


def open_session(directory: Path, name: str, settings: Settings) -> TextSession:
    """A session of the language model in `directory`, called `name` in its results."""
    device = prepare(settings)
    model = read_causal_lm(directory)
    if model.speech is None:
        language = open_language(model.language, device, language_dtype(directory, settings.dtype))
    else:
        # The tensors of the hearing half are knowingly left aside.
        _, tensors = split_language(read_state_dict(model.speech.checkpoint.weights))
        language = open_nano_language(model.speech, tensors, device, settings.dtype)
    return TextSession(name, "pytorch", CausalLm(model, language))
