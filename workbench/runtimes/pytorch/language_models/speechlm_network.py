"""The language model of a SpeechLM on PyTorch: rows of ids in, logits of all streams out.

The decoder is `LanguageModel`, as for plain language models; its one table embeds the ids of all streams. This file
knows no phases, no masks and no sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.pipelines.conversation.speechlm_frontend import required
from workbench.runtimes.pytorch.language_models.growing_cache import growing_cache, keep_first, stack
from workbench.runtimes.pytorch.language_models.language import LanguageModel
from workbench.runtimes.pytorch.networks.speechlm_heads import Heads
from workbench.runtimes.pytorch.numerics.arithmetic import keeping_float64
from workbench.runtimes.pytorch.speechlm_tower import AudioEncoder
from workbench.runtimes.pytorch.tap import tap_into
from workbench.speech.layout import SpeechLayout
from workbench.speech.network import NeededLogits, Scores
from workbench.speech.prompt import embedded
from workbench.trace.recorder import Recorder


class SpeechLmNetwork:
    """A loaded language model over text and codec streams; implements `workbench.speech.network.SpeechNetwork`.

    Args:
        streams: the tensor `stream_emb` [streams, hidden].
        audio_encoder: None if the checkpoint has no audio encoder.
    """

    def __init__(
        self, language: LanguageModel, layout: SpeechLayout, streams: Tensor, audio_encoder: AudioEncoder | None
    ):
        self.language, self.layout = language, layout
        self.audio_encoder = audio_encoder
        with torch.inference_mode():
            self.heads = Heads(language.network.lm_head.weight, streams, layout)
        self._table = language.network.get_input_embeddings().weight
        self._unconditional: tuple[int, Any] | None = None  # the length and the cache of the last null branch

    @property
    def dtype(self) -> str:
        """The name of the type that the language model computes in."""
        return self.language.dtype

    @property
    def context(self) -> int:
        """The most positions of a sequence."""
        return self.language.config.context

    def embed_audio(self, samples: np.ndarray, recorder: Recorder | None = None) -> Tensor:
        """Returns the embeddings [n, hidden] of a recording, 16 kHz float32. See `SpeechNetwork.embed_audio`.

        Raises `BadInput` if the checkpoint has no audio encoder, for a recording that is silent, too short or broken,
        or for one that fills the context.
        """
        encoder = required(self.audio_encoder)
        encoder.frontend.check_room(samples, self.context)
        return encoder(samples, recorder).to(self._table.dtype)

    @torch.inference_mode()
    def embed(self, rows: np.ndarray) -> Tensor:
        """Returns embeddings [n, hidden] of rows of ids [n, streams]; see `SpeechLayout.counted`."""
        counts = self.layout.counted(rows)
        sizes = counts.sum(axis=1)
        ids = torch.from_numpy(np.ascontiguousarray(rows[counts], dtype=np.int64)).to(self._table.device)
        offsets = torch.from_numpy(sizes.cumsum() - sizes).to(self._table.device)
        embeddings: Tensor = F.embedding_bag(ids, self._table, offsets, mode="sum")
        return embeddings

    def body(self, embeddings: Tensor, cache: Any) -> Tensor:
        """Appends embeddings [branches, n, hidden] to a sequence; returns the state after the final norm of its last
        position [branches, hidden].
        """
        with keeping_float64(self._table.dtype):
            states = self.language.network.model(inputs_embeds=embeddings, past_key_values=cache, use_cache=True)
        last: Tensor = states.last_hidden_state[:, -1]
        return last

    def new_cache(self) -> Any:
        """Returns the cache of an empty sequence."""
        return growing_cache(self.language.network.config)

    def unconditional(self, length: int) -> Any:
        """Returns the cache of the null branch: `length` all-zero rows, each the embedding of the pad.

        The last one is kept, as several answers to one prompt share it.
        """
        if self._unconditional is None or self._unconditional[0] != length:
            self._unconditional = None  # frees its memory first
            cache = self.new_cache()
            self.body(self._table[self.layout.pad].expand(1, length, -1), cache)
            self._unconditional = length, cache
        return self._unconditional[1]

    def merged(self, prompt: Sequence[Any]) -> Tensor:
        """Returns the embeddings [1, positions, hidden] of a prompt's parts.

        Raises `BadInput` for an empty prompt, one that fills the context, or unknown ids.
        """
        return torch.cat(embedded(prompt, self.layout, self.context, self.embed))[None]

    @torch.inference_mode()
    def open(self, prompt: Sequence[Any]) -> SpeechLmState:
        """Returns a new sequence; see `SpeechNetwork.open`. Raises `BadInput` as `merged` does."""
        return SpeechLmState(self, self.merged(prompt))

    @torch.inference_mode()
    def trace(self, prompt: Sequence[Any], recorder: Recorder) -> None:
        """Records the stages `llm.*`, `logits` and `codec.logits` of one pass over a prompt; see
        `SpeechNetwork.trace`.
        """
        tap = tap_into(recorder)
        hidden = self.language.trace_body(self.merged(prompt), recorder)
        for stage, head in (("logits", self.heads.main), ("codec.logits", self.heads.codec)):
            if recorder.needs(stage):  # they are large
                tap(stage, head(hidden))


class SpeechLmState:
    """One sequence in progress; implements `workbench.speech.network.SpeechState`."""

    def __init__(self, network: SpeechLmNetwork, prompt: Tensor):
        self._network = network
        self._waiting: Tensor | None = prompt  # computed together with the first rows
        self._cache = network.new_cache()
        self._length = prompt.shape[1]
        self._branches = 1

    @property
    def length(self) -> int:
        """The number of positions fed, prompt included."""
        return self._length

    @torch.inference_mode()
    def feed(self, rows: np.ndarray, needed_logits: NeededLogits) -> Scores:
        """Appends rows of ids [n, streams] and returns the logits after the last one; see `SpeechState.feed`."""
        embeddings = self._network.embed(rows)[None].expand(self._branches, -1, -1)
        if self._waiting is not None:
            embeddings, self._waiting = torch.cat([self._waiting, embeddings], dim=1), None
        self._length += len(rows)
        return self._network.heads.scores(self._network.body(embeddings, self._cache), needed_logits)

    @torch.inference_mode()
    def split(self) -> None:
        """Adds the null branch; see `SpeechState.split`."""
        if self._waiting is not None:
            self._network.body(self._waiting, self._cache)
            self._waiting = None
        stack(self._cache, self._network.unconditional(self._length))
        self._branches = 2

    @torch.inference_mode()
    def join(self) -> None:
        """Drops the null branch; see `SpeechState.join`."""
        if self._branches > 1:
            keep_first(self._cache)
        self._branches = 1
