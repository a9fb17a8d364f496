"""A plain language model around its network: a prompt's ids before it, text after it."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from workbench.closing import close
from workbench.decoding.alternatives import Watch
from workbench.decoding.generation import decoding_of
from workbench.families.causal_lm import CausalLmModel, CausalLmOptions, prompt_ids
from workbench.generation_session import Table
from workbench.pipelines.language import Language
from workbench.session import Prompt, StageFilter
from workbench.stages import Recorder, Stages


class CausalLm:
    """A loaded language model as a writer (see `workbench.generation_session`)."""

    options_class = CausalLmOptions

    def __init__(self, model: CausalLmModel, language: Language):
        self.model = model
        self.language = language
        self.stop_ids = model.stop_ids

    @property
    def table(self) -> Table:
        """As `Writer.table`."""
        config = self.model.language
        return Table((config.vocabulary, config.hidden_size), self.language.table_rows)

    @property
    def dtype(self) -> str:
        """Of its arithmetic."""
        return self.language.dtype

    def prompt_ids(self, prompt: Prompt, options: CausalLmOptions) -> list[int]:
        """As `Writer.prompt_ids`."""
        return prompt_ids(self.model, prompt, options)

    def write(
        self, ids: Sequence[int], options: CausalLmOptions, alternatives: int = 0, watch: Watch | None = None
    ) -> Generator[int, None, None]:
        """As `Writer.write`."""
        decoding = decoding_of(options, self.stop_ids, alternatives=alternatives)
        for tokens in self.language.generate(self.language.prompt([ids]), decoding, watch):
            yield int(tokens[0])

    def text_of(self, ids: Sequence[int]) -> str:
        """As `Writer.text_of`."""
        return self.model.tokenizer.text(ids)

    def piece(self, number: int) -> str:
        """As `Writer.piece`."""
        return self.model.tokenizer.piece(number)

    def trace(self, ids: Sequence[int], wanted: StageFilter, given: Stages | None = None) -> dict[str, np.ndarray]:
        """As `Writer.trace`."""
        recorder = Recorder(wanted, given)
        self.language.trace(self.language.prompt([ids]), recorder)
        return recorder.stages

    def close(self) -> None:
        """Frees the language model."""
        close(self.language)
