"""The plain causal language model on vLLM: opens a session from a directory."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np

from workbench.core.errors import Unavailable
from workbench.core.settings import Settings
from workbench.decoding.alternatives import Watch
from workbench.decoding.generation import decoding_of
from workbench.embeddings import Embedding
from workbench.embeddings.prompt import TokenPrompt, check_range
from workbench.families.language.causal_lm import CausalLmModel, CausalLmOptions, read_causal_lm, token_prompt
from workbench.pipelines.text.text_scores import scored
from workbench.pipelines.text.text_session import TextSession
from workbench.pipelines.text.token_table import Table
from workbench.runtimes.vllm.capture.tracing import check_not_substituted, follow_steps, prompt_stages
from workbench.runtimes.vllm.engine.engine import Engine
from workbench.runtimes.vllm.positions import check_positions
from workbench.runtimes.vllm.requests.request import Request
from workbench.runtimes.vllm.requests.scoring import score_rows
from workbench.runtimes.vllm.session import started_engine
from workbench.runtimes.vllm.weights import check_weights
from workbench.session.values import Prompt, TextScore
from workbench.trace.recorder import Stages
from workbench.trace.steps import ForcedDecoding
from workbench.trace.trace import StageFilter


class EngineWriter:
    """A language model in an engine that implements `workbench.pipelines.text.text_session.Writer`."""

    options_class = CausalLmOptions

    def __init__(self, model: CausalLmModel, engine: Engine):
        self.model = model
        self.engine = engine
        self.stop_ids = model.stop_ids

    @property
    def table(self) -> Table:
        """Raises `Unavailable`, as the table is in the engine's process."""
        raise Unavailable("vLLM does not show its embedding table; open the model on pytorch or gguf to look at it")

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        return self.engine.dtype

    def prompt(self, prompt: Prompt, options: CausalLmOptions, embeddings: Sequence[Embedding] = ()) -> TokenPrompt:
        """See `Writer.prompt`."""
        return token_prompt(self.model, prompt, options, embeddings)

    def write(
        self, prompt: TokenPrompt, options: CausalLmOptions, alternatives: int = 0, watch: Watch | None = None
    ) -> Generator[int, None, None]:
        """See `Writer.write`."""
        decoding = decoding_of(options, self.stop_ids, alternatives=alternatives)
        for _, tokens in self.engine.stream([self._request(prompt)], [decoding], watch):
            yield from tokens

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
        """See `Writer.trace`; raises `Unavailable` if stages are substituted."""
        check_not_substituted(given)
        return prompt_stages(self.engine, self._request(prompt), requested_stages)

    def follow(self, prompt: TokenPrompt, forced: ForcedDecoding) -> None:
        """See `Writer.follow`."""
        follow_steps(self.engine, self._request(prompt), forced)

    def score(self, texts: Sequence[str], end: bool) -> list[TextScore]:
        """See `Writer.score`. vLLM computes every text as a whole, as it caches no prompts that it scores."""
        return scored(self.model, texts, end, lambda rows: score_rows(self.engine, rows))

    def _request(self, prompt: TokenPrompt) -> Request:
        if not prompt.embeddings:
            return Request(prompt.ids)
        check_range(prompt.embeddings, self.dtype)
        where = prompt.is_embedding
        rows = np.zeros((len(where), self.model.language.hidden_size), np.float32)
        rows[where] = prompt.rows
        # The placeholder id may be outside the table.
        ids = [number if number < self.model.language.vocabulary else 0 for number in prompt.ids]
        return Request(ids, embeddings=rows, is_embedding=where)

    def close(self) -> None:
        """Ends the engine."""
        self.engine.close()


def open_session(directory: Path, name: str, settings: Settings) -> TextSession:
    """Opens a session for the language model in `directory`; results call the model `name`."""
    model = read_causal_lm(directory)
    check_weights(directory)
    check_positions(directory, settings.max_length)
    engine = started_engine(directory, name, settings)
    session = TextSession(name, "vllm", EngineWriter(model, engine))
    session.log = engine.log
    return session
