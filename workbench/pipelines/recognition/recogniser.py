"""The protocols of a model on a runtime in a speech session: it recognises one chunk of speech at a time, or several.

This file knows no network.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from workbench.core.options import ListeningOptions
from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.session.values import SpokenHypothesis, Token
from workbench.trace.ancestry import Ancestry
from workbench.trace.recorder import Stages
from workbench.trace.steps import ForcedDecoding
from workbench.trace.trace import StageFilter


@dataclass(frozen=True)
class Recognition:
    """The result of a recogniser on one chunk; token times count from the start of the chunk."""

    text: str
    language: str | None
    tags: Mapping[str, str]
    tokens: tuple[Token, ...]
    ids: tuple[int, ...]
    notes: tuple[str, ...] = ()  # what the user should know about how it was recognised
    ended: bool = True  # whether the model ended it; a limit cut it off otherwise
    hypotheses: tuple[SpokenHypothesis, ...] = ()  # of a beam search, best first
    worded: bool = False  # whether the tokens are words of a lexicon, whose texts are not those of their ids
    prompt_tokens: int = 0  # positions of the language model's prompt, for models that have one


class Recogniser(Protocol):
    """A loaded model that recognises one chunk of speech at a time."""

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        ...

    @property
    def options_class(self) -> type[ListeningOptions]:
        """The family's options."""
        ...

    def recognise(self, samples: np.ndarray, options: Any) -> Recognition:
        """Returns what is said in mono samples [n]."""
        ...

    def text_of(self, ids: Sequence[int]) -> str:
        """Returns the text of some of the visible tokens."""
        ...

    def trace(
        self, samples: np.ndarray, options: Any, requested_stages: StageFilter, given: Stages | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the stages of one pass over the samples; `given` as in `workbench.trace.recorder.Recorder`."""
        ...


@runtime_checkable
class StreamingRecogniser(Protocol):
    """A recogniser that writes token by token, and can transcribe several chunks in one batch."""

    def recognise_stream(
        self, chunks: Sequence[np.ndarray], options: Any
    ) -> Generator[list[str], None, list[Recognition]]:
        """Yields the text so far of every chunk after each token; returns the recognition of each chunk."""
        ...


@runtime_checkable
class BatchingRecogniser(Protocol):
    """A recogniser whose runtime batches by itself: it takes as many chunks as the runtime computes at once."""

    @property
    def max_batch_size(self) -> int:
        """The number of chunks that the runtime computes at once."""
        ...


@runtime_checkable
class PaddingRecogniser(Protocol):
    """A recogniser that computes several chunks at once, in parallel or padded to the longest, with equal results."""

    @property
    def max_batch_seconds(self) -> float:
        """The most seconds of one pass, with the padding; 0 if the runtime takes one chunk at a time."""
        ...

    @property
    def pads(self) -> bool:
        """Whether padding costs time, so that chunks of similar length should share a batch."""
        ...

    def recognise_batch(self, chunks: Sequence[np.ndarray], options: Any) -> list[Recognition]:
        """Returns what is said in each chunk [n]: the result of `recognise`, except for rounding."""
        ...


@runtime_checkable
class StepwiseRecogniser(Protocol):
    """A recogniser that writes token by token, and shows the stages of each decoding step."""

    def follow(self, samples: np.ndarray, options: Any, forced: ForcedDecoding | ForcedBeamSearch) -> None:
        """Records the traced steps of a forced decoding after the prompt of one chunk (see
        `workbench.pipelines.text.language.Language.follow` and `SearchesBeams.follow_beams`).

        Raises `BadInput` for the steps of a beam search if the runtime has no beam search.
        """
        ...

    def ancestry(self, samples: np.ndarray, options: Any) -> Ancestry | None:
        """Returns the hypotheses of every pass of the beam search over one chunk; None if the options ask for none."""
        ...


@runtime_checkable
class NamesPieces(Protocol):
    """A recogniser that shows the text of its tokens."""

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Returns the text of each token for display, special tokens too; raises `BadInput` for an id outside the
        vocabulary.
        """
        ...
