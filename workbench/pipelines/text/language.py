"""The protocol by which pipelines call a language model: from a prompt's embeddings to tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from workbench.decoding.alternatives import Watch
from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.decoding.generation import Decoding
from workbench.embeddings.merge import Merged
from workbench.trace.ancestry import Ancestry
from workbench.trace.recorder import Recorder
from workbench.trace.steps import ForcedDecoding


class Language(Protocol):
    """A loaded language model of one runtime. Its embeddings are arrays of that runtime: numpy arrays or torch
    tensors.
    """

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        ...

    def embed(self, ids: np.ndarray) -> Any:
        """Returns text embeddings [batch, tokens, hidden] of ids [batch, tokens]."""
        ...

    def table_rows(self, first: int, last: int) -> np.ndarray:
        """Returns rows `first` to `last` (exclusive) of the embedding table: float32 [last - first, hidden]."""
        ...

    def from_numpy(self, values: np.ndarray) -> Any:
        """Returns a float32 array [...] as an array of the runtime."""
        ...

    def prompt(self, rows: Sequence[Sequence[int]]) -> Merged[Any]:
        """Returns text prompts from the ids of each row; shorter rows are padded on the left."""
        ...

    def generate(self, prompt: Merged[Any], decoding: Decoding, watch: Watch | None = None) -> Iterator[np.ndarray]:
        """Yields the next token of every row [batch] after each step, and `ENDED` for rows that have ended.

        A stop id is yielded too, as the last token of its row. With beam search, each step yields all tokens of every
        row's best hypothesis so far [batch, tokens]; the last step is final and padded with `ENDED`. Closing the
        iterator stops the work within one token.

        Args:
            prompt: padded on the left.
            watch: is called with every token except `ENDED` before the token is yielded, if `decoding` asks for
                alternatives.

        Raises `BadInput` if alternatives are asked of a beam search, and `NotFinite` for logits that are NaN.
        """
        ...

    def trace(self, prompt: Merged[Any], recorder: Recorder) -> None:
        """Records the stages `llm.*` and `logits` of one pass over a prompt of one row."""
        ...

    def follow(self, prompt: Merged[Any], forced: ForcedDecoding) -> None:
        """Reads a prompt of one row and the ids of a forced decoding after it, one id at a time with the cache of all
        before it.

        Records the stages `llm.*` and `logits` of the steps that are traced, one row each, and what the cache holds
        after them, `llm.layers.N.cache.key` and `.value` [positions, heads, head width].
        """
        ...

    def score(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Returns ln P of each token of a row after the first, given all tokens before it: float64 [tokens - 1] each.

        Results for the beginnings of rows are kept up to a limit, for later rows with the same beginning.
        """
        ...


@runtime_checkable
class SearchesBeams(Protocol):
    """A language model that shows the steps of its beam search."""

    def ancestry(self, prompt: Merged[Any], decoding: Decoding) -> Ancestry:
        """Returns the hypotheses of every pass of its own beam search over a prompt of one row."""
        ...

    def follow_beams(self, prompt: Merged[Any], forced: ForcedBeamSearch) -> None:
        """Reads a prompt of one row and the hypotheses of a forced decoding after it, those of a step in one pass.

        Records the stages that `Language.follow` records, of every hypothesis, and the choice before each step.
        """
        ...
