"""The protocols by which chat with speech calls a runtime: a language model over codec streams, and a codec.

Arrays of ids are numpy arrays. What the audio encoder returns stays an array of the runtime. This file computes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from workbench.speech.layout import SpeechLayout
from workbench.trace.recorder import Recorder


@dataclass(frozen=True)
class NeededLogits:
    """The logits that the next choice needs; a runtime computes no others, and without intervals none at all."""

    main: tuple[tuple[int, int], ...]  # half-open intervals of ids of stream 0, ascending
    codec: bool = False  # also those of streams 1 and above, each over its own interval


@dataclass(frozen=True, eq=False)
class Scores:
    """Logits after the last row fed, float32. The first axis is the branch: the model, then the null branch."""

    main: np.ndarray  # [branches, ids of the needed intervals in order]
    codec: np.ndarray | None  # [branches, streams - 1, layer size]


class SpeechState(Protocol):
    """One sequence in progress, with its keys and values."""

    @property
    def length(self) -> int:
        """The number of positions fed, prompt included, which counts from the beginning."""
        ...

    def feed(self, rows: np.ndarray, needed: NeededLogits) -> Scores:
        """Appends rows of ids [n, streams], at least one, and returns the logits after the last one.

        The first call computes the prompt, too.
        """
        ...

    def split(self) -> None:
        """Adds the null branch of classifier-free guidance: as many positions as fed so far, each an all-zero row.

        It is called after the first `feed`. Rows fed from then on go to both branches.
        """
        ...

    def join(self) -> None:
        """Drops the null branch."""
        ...


class SpeechModel(Protocol):
    """A loaded language model over text and codec streams, without its generation."""

    layout: SpeechLayout

    @property
    def dtype(self) -> str:
        """The name of the type that the language model computes in."""
        ...

    @property
    def context(self) -> int:
        """The most positions of a sequence."""
        ...

    def embed_audio(self, samples: np.ndarray, recorder: Recorder | None = None) -> Any:
        """Returns the embeddings [n, hidden] of a recording, 16 kHz float32, by the audio encoder and its adaptor.

        A recorder gets the stages `tower.*` and `adaptor.output`. Raises `BadInput` if the checkpoint has no audio
        encoder.
        """
        ...

    def trace(self, prompt: Sequence[Any], recorder: Recorder) -> None:
        """Records one pass over a prompt: `llm.*`, `logits` of stream 0 [positions, vocabulary], `codec.logits`
        [positions, streams - 1, layer size], each stream over its own interval. `llm.norm` is without `stream_emb`.
        """
        ...


class SpeechNetwork(SpeechModel, Protocol):
    """A loaded language model that is fed row by row."""

    def open(self, prompt: Sequence[Any]) -> SpeechState:
        """Returns a new sequence. Its prompt lists arrays of ids [n, streams] and results of `embed_audio`."""
        ...


class Codec(Protocol):
    """A neural audio codec with several codebooks for each frame."""

    sample_rate: int  # Hz
    hop: int  # samples per frame

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Returns codes [frames, streams] of float32 samples at `sample_rate`."""
        ...

    def decode(self, codes: np.ndarray, recorder: Recorder | None = None) -> np.ndarray:
        """Returns float32 samples [frames * hop] of codes [frames, streams].

        A recorder gets the stages `codec.codes`, `codec.latents` [frames, width] and `codec.audio`.
        """
        ...

    @property
    def receptive_field(self) -> tuple[int, int]:
        """The receptive field: how many frames before and after a frame change its samples; farther ones do not."""
        ...
