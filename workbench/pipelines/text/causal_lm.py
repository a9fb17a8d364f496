"""The pipeline of a plain language model: token ids from the prompt, text from the generated tokens."""

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
from workbench.families.language.causal_lm import CausalLmModel, CausalLmOptions, token_prompt
from workbench.pipelines.text.language import Language
from workbench.pipelines.text.text_scores import scored
from workbench.pipelines.text.token_table import Table
from workbench.session.values import Prompt, TextScore
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.steps import ForcedDecoding
from workbench.trace.trace import StageFilter


class CausalLm:
    """A loaded language model that implements `workbench.pipelines.text.text_session.Writer`."""

    options_class = CausalLmOptions

    def __init__(self, model: CausalLmModel, language: Language):
        self.model = model
        self.language = language
        self.stop_ids = model.stop_ids

    @property
    def table(self) -> Table:
        """See `Writer.table`."""
        config = self.model.language
        return Table((config.vocabulary, config.hidden_size), self.language.table_rows)

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        return self.language.dtype

    def prompt(self, prompt: Prompt, options: CausalLmOptions, embeddings: Sequence[Embedding] = ()) -> TokenPrompt:
        """See `Writer.prompt`."""
        return token_prompt(self.model, prompt, options, embeddings)

    def write(
        self, prompt: TokenPrompt, options: CausalLmOptions, alternatives: int = 0, watch: Watch | None = None
    ) -> Generator[int, None, None]:
        """See `Writer.write`."""
        decoding = decoding_of(options, self.stop_ids, alternatives=alternatives)
        for tokens in self.language.generate(self._merged(prompt), decoding, watch):
            yield int(tokens[0])

    @property
    def vocabulary(self) -> int:
        """See `Writer.vocabulary`."""
        return self.model.language.vocabulary

    def text_of(self, ids: Sequence[int]) -> str:
        """See `Writer.text_of`."""
        return self.model.tokenizer.decode(ids)

    def piece(self, number: int) -> str:
        """See `Writer.piece`."""
        return self.model.tokenizer.piece(number)

    def trace(
        self, prompt: TokenPrompt, requested_stages: StageFilter, given: Stages | None = None
    ) -> dict[str, np.ndarray]:
        """See `Writer.trace`."""
        recorder = Recorder(requested_stages, given)
        self.language.trace(self._merged(prompt), recorder)
        return recorder.stages

    def follow(self, prompt: TokenPrompt, forced: ForcedDecoding) -> None:
        """See `Writer.follow`."""
        self.language.follow(self._merged(prompt), forced)

    def score(self, texts: Sequence[str], end: bool) -> list[TextScore]:
        """See `Writer.score`."""
        return scored(self.model, texts, end, self.language.score)

    def _merged(self, prompt: TokenPrompt) -> Merged[Any]:
        """Returns the prompt's embeddings: rows of the model's table, with the injected embeddings at the
        placeholders.
        """
        if not prompt.embeddings:
            return self.language.prompt([prompt.ids])
        check_range(prompt.embeddings, self.language.dtype)
        ids, rows = np.array([prompt.ids]), prompt.rows
        # The placeholder id may be outside the table. Any valid id does, as its row is replaced.
        text = self.language.embed(np.where(prompt.is_embedding[None], 0, ids))
        # Each placeholder of the prompt already stands for one position.
        return merge_speech(
            ids, text, self.language.from_numpy(rows)[None], np.ones((1, len(rows)), np.int64), prompt.placeholder
        )

    def close(self) -> None:
        """Frees the language model."""
        close(self.language)
