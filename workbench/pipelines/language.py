"""A language model as the pipelines call it: from a prompt's embeddings to tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from workbench.decoding.alternatives import Watch
from workbench.decoding.generation import Decoding
from workbench.embeddings.merge import Merged
from workbench.trace.recorder import Recorder


class Language(Protocol):
    """A loaded language model of a runtime. Its embeddings are arrays of that runtime's kind, numpy's or torch's."""

    @property
    def dtype(self) -> str:
        """The name of its arithmetic's type."""
        ...

    def embed(self, ids: np.ndarray) -> Any:
        """Text embeddings [batch, tokens, hidden] of ids [batch, tokens]."""
        ...

    def table_rows(self, first: int, last: int) -> np.ndarray:
        """Rows `first` to `last` of the embedding table, the last one left out: float32 [last - first, hidden]."""
        ...

    def own(self, values: np.ndarray) -> Any:
        """A float32 array as one of the runtime's kind."""
        ...

    def prompt(self, rows: Sequence[Sequence[int]]) -> Merged[Any]:
        """Prompts of text alone, from the ids of each; the shorter ones padded on the left."""
        ...

    def generate(self, prompt: Merged[Any], decoding: Decoding, watch: Watch | None = None) -> Iterator[np.ndarray]:
        """Yields the next token of every row [batch] after each step, `ENDED` for rows that have ended.

        Stop ids are yielded too, as the last token of their row. With beam search, what is yielded is all tokens of
        every row's best hypothesis so far [batch, tokens]; the last is final, padded with `ENDED`. Closing the iterator
        stops the work within one token.

        Args:
            prompt: padded on the left.
            watch: told of every token that is no `ENDED`, before it is yielded, where `decoding` asks for alternatives.

        Raises `BadInput` where alternatives are asked of a beam search.
        """
        ...

    def trace(self, prompt: Merged[Any], recorder: Recorder) -> None:
        """Records the stages of one pass over a prompt of one row: `llm.*` and `logits`."""
        ...
