"""A plain language model around its network: a prompt's ids before it, text after it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from workbench.core.resources import close
from workbench.decoding.alternatives import Watch
from workbench.decoding.generation import decoding_of
from workbench.embeddings import Embedding
from workbench.embeddings.merge import Merged, merge_speech
from workbench.embeddings.prompt import TokenPrompt, check_range
from workbench.families.causal_lm import CausalLmModel, CausalLmOptions, token_prompt
from workbench.pipelines.language import Language
from workbench.pipelines.text_session import Table
from workbench.session.values import Prompt
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.trace import StageFilter


class CausalLm:
    """A loaded language model as a writer (see `workbench.pipelines.text_session`)."""

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

    def prompt(self, prompt: Prompt, options: CausalLmOptions, embeddings: Sequence[Embedding] = ()) -> TokenPrompt:
        """As `Writer.prompt`."""
        return token_prompt(self.model, prompt, options, embeddings)

    def write(
        self, prompt: TokenPrompt, options: CausalLmOptions, alternatives: int = 0, watch: Watch | None = None
    ) -> Generator[int, None, None]:
        """As `Writer.write`."""
        decoding = decoding_of(options, self.stop_ids, alternatives=alternatives)
        for tokens in self.language.generate(self._merged(prompt), decoding, watch):
            yield int(tokens[0])

    def text_of(self, ids: Sequence[int]) -> str:
        """As `Writer.text_of`."""
        return self.model.tokenizer.text(ids)

    def piece(self, number: int) -> str:
        """As `Writer.piece`."""
        return self.model.tokenizer.piece(number)

    def trace(self, prompt: TokenPrompt, wanted: StageFilter, given: Stages | None = None) -> dict[str, np.ndarray]:
        """As `Writer.trace`."""
        recorder = Recorder(wanted, given)
        self.language.trace(self._merged(prompt), recorder)
        return recorder.stages

    def _merged(self, prompt: TokenPrompt) -> Merged[Any]:
        """The prompt's embeddings: rows of the model's table, and what was given for placeholders."""
        if not prompt.embeddings:
            return self.language.prompt([prompt.ids])
        check_range(prompt.embeddings, self.language.dtype)
        ids, rows = np.array([prompt.ids]), prompt.rows
        # A placeholder may be no row of the table; what is looked up for it is not used.
        text = self.language.embed(np.where(prompt.is_embedding[None], 0, ids))
        # Every placeholder is a position already.
        return merge_speech(
            ids, text, self.language.own(rows)[None], np.ones((1, len(rows)), np.int64), prompt.placeholder
        )

    def close(self) -> None:
        """Frees the language model."""
        close(self.language)
