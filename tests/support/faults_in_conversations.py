"""Faults that ports of speech models with parallel streams have, each planted in an open PyTorch session of a SpeechLM.

A planter alters the session, or the code that it runs through, until the patch is undone. `FAULTS` says by what the
fault is, not by what a comparison finds, which stage is the first one recorded behind it, and which words of the
verdict name its cause.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.pipelines.conversation import conversation_session
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.speech import choosing, generate
from workbench.speech.layout import SpeechLayout
from workbench.speech.network import Scores
from workbench.speech.phases import Cursor, Kind, Phase

Planter = Callable[[ConversationSession, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Fault:
    """A fault, and what has to be found."""

    plant: Planter
    stage: str  # the first stage recorded behind it
    words: str = ""  # of the verdict's sentence
    options: Mapping[str, Any] = field(default_factory=dict)  # of the answer that shows it


class _AddedBefore:
    """Heads that add a stream's embedding to the state before the final norm."""

    def __init__(self, network: Any, streams: Tensor):
        norm = network.language.network.model.norm
        self._heads, self._streams, self._norm = network.heads, streams, copy.deepcopy(norm)
        self._before = torch.empty(0)
        self.hook = norm.register_forward_pre_hook(self._keep)

    def _keep(self, _: Any, arguments: tuple[Tensor, ...]) -> None:
        self._before = arguments[0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._heads, name)

    def _logits(self, before: Tensor) -> Tensor:
        layout, matrix = self._heads.layout, self._heads.matrix
        return torch.stack(
            [
                F.linear(self._norm(before + self._streams[n]), matrix[slice(*layout.interval(n))])
                for n in range(1, layout.streams)
            ],
            dim=-2,
        )

    def codec(self, hidden: Tensor) -> Tensor:
        return self._logits(self._before)

    def scores(self, hidden: Tensor, wanted: Any) -> Scores:
        found = self._heads.scores(hidden, wanted)
        return replace(found, codec=self._logits(self._before[:, -1]).numpy()) if wanted.codec else found


def stream_embedding_before_the_norm(session: ConversationSession, patch: pytest.MonkeyPatch) -> None:
    network: Any = session.network
    draw = torch.Generator().manual_seed(1)
    streams = 0.5 * torch.randn(network.layout.streams, network._table.shape[1], generator=draw)
    heads = _AddedBefore(network, streams)
    patch.setattr(network, "heads", heads)


def _embed_with(session: ConversationSession, patch: pytest.MonkeyPatch, left_out: Callable[[Any], Any]) -> None:
    network: Any = session.network

    def embed(rows: np.ndarray) -> Tensor:
        each = network._table[torch.from_numpy(rows)]
        counts = torch.from_numpy(~left_out(rows))
        counts[:, 0] = True
        with torch.inference_mode():
            return (each * counts[..., None]).sum(dim=1)

    patch.setattr(network, "embed", embed)


def id_zero_is_embedded(session: ConversationSession, patch: pytest.MonkeyPatch) -> None:
    _embed_with(session, patch, lambda rows: np.zeros(rows.shape, dtype=bool))


def stream_pads_are_left_out(session: ConversationSession, patch: pytest.MonkeyPatch) -> None:
    layout = session.network.layout
    _embed_with(session, patch, lambda rows: (rows == layout.pad) | (rows == layout.pads))


def delay_off_by_one(session: ConversationSession, patch: pytest.MonkeyPatch) -> None:
    def aligned(rows: np.ndarray, layout: SpeechLayout) -> np.ndarray:
        frames, streams = max(len(rows) - layout.streams + 1, 0), np.arange(layout.streams)
        codes: np.ndarray = rows[np.arange(frames)[:, None] + np.maximum(streams - 1, 0), streams] - layout.pads - 1
        return np.maximum(codes, 0)

    patch.setattr(conversation_session, "aligned", aligned)


class _NoAssistant(Cursor):
    @property
    def phase(self) -> Phase:
        self._in_message = True
        return super().phase


def no_assistant_before_audio(session: ConversationSession, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(generate, "Cursor", _NoAssistant)


def temperature_of_the_other_modality(session: ConversationSession, patch: pytest.MonkeyPatch) -> None:
    right, other = choosing.draw, {0.6: 0.8, 0.8: 0.6}
    patch.setattr(choosing, "draw", lambda logits, heat, *rest: right(logits, other.get(heat, heat), *rest))


class _Neighbours(SpeechLayout):
    """The streams from 2 on have the interval of the one before."""

    @property
    def pads(self) -> Any:
        right = super().pads
        return np.concatenate([right[:2], right[1:-1]])


def mask_of_the_neighbour(session: ConversationSession, patch: pytest.MonkeyPatch) -> None:
    network: Any = session.network
    heads, right, layout = network.heads, generate.chosen, network.layout

    def scores(hidden: Tensor, wanted: Any) -> Scores:
        found = heads.scores(hidden, wanted)
        if not wanted.codec:
            return found
        state, bias = hidden.to(heads.dtype), heads.rows.by_stream(heads._bias[heads.rows.later])
        own = [F.linear(state, heads.matrix[slice(*layout.interval(max(n - 1, 1)))]) for n in range(1, layout.streams)]
        return replace(found, codec=(torch.stack(own, dim=1) + bias).numpy())

    changed = copy.copy(heads)
    changed.scores = scores
    patch.setattr(network, "heads", changed)
    shifted = _Neighbours(*astuple(layout))
    patch.setattr(generate, "chosen", lambda main, codec, due, _: right(main, codec, due, shifted))


def guidance_without_the_mask(session: ConversationSession, patch: pytest.MonkeyPatch) -> None:
    right = generate.needed_logits

    def wanted(phase: Phase, layout: SpeechLayout) -> Any:
        found = right(phase, layout)
        own = (layout.user, layout.user + 1)
        # The first column, as the special ids come before those of the streams.
        return replace(found, main=(own, *found.main)) if phase.kind is Kind.AUDIO and found.main else found

    def without(logits: np.ndarray, *rest: Any) -> Any:
        """Chooses another id than the one that is not allowed, so that the answer goes on."""
        if len(logits) == 1:
            return right_draw(logits, *rest)
        legal = logits.copy()
        legal[0, 0] = -np.inf
        return right_draw(legal, *rest)

    right_draw = choosing.draw
    for module in (generate, choosing):
        patch.setattr(module, "needed_logits", wanted)
    patch.setattr(choosing, "draw", without)


def history_shifted_by_one(session: ConversationSession, patch: pytest.MonkeyPatch) -> None:
    network: Any = session.network
    right = network.open

    def open_(prompt: Any) -> Any:
        state = right(prompt)
        feed, before = state.feed, [np.full(network.layout.streams, network.layout.pad)]

        def late(rows: np.ndarray, wanted: Any) -> Scores:
            shifted = rows.copy()
            for n, row in enumerate(rows):
                if row[1] != network.layout.pad:  # a row of audio
                    shifted[n, 1:] = before[0][1:]
                before[0] = row
            found: Scores = feed(shifted, wanted)
            return found

        state.feed = late
        return state

    patch.setattr(network, "open", open_)


def another_codebook(session: ConversationSession, patch: pytest.MonkeyPatch) -> None:
    codec: Any = session._codec
    books = [each.codebook for each in codec.network.quantizer.quantizers]
    patch.setitem(books[1]._buffers, "embed", books[2].embed)


GREEDY = {"temperature": 0.0}
DRAWN = {"text_temperature": 0.6, "audio_temperature": 0.8}

FAULTS: Mapping[str, Fault] = {
    "stream embedding before the norm": Fault(stream_embedding_before_the_norm, "codec.logits"),
    "id 0 is embedded": Fault(id_zero_is_embedded, "llm.embeddings"),
    "stream pads are left out": Fault(stream_pads_are_left_out, "answer.embeddings"),
    "delay off by one": Fault(delay_off_by_one, "codec.codes", "streams 1, 2, 3, 4 come 1 row late"),
    "no <|assistant|> before audio": Fault(
        no_assistant_before_audio, "tokens", "the candidate leaves out <|assistant|>"
    ),
    "temperature of the other modality": Fault(
        temperature_of_the_other_modality,
        "answer.temperatures",
        "drawn at temperature 0.8, the reference's at 0.6; 0.8 is the temperature of audio",
        DRAWN,
    ),
    "mask of the neighbour": Fault(
        mask_of_the_neighbour, "answer.logprobs", "the ids of stream 1: another stream's mask"
    ),
    "guidance without the mask": Fault(
        guidance_without_the_mask, "answer.logprobs", "does not have, such as 9: a mask is missing", {"cfg": 3.0}
    ),
    "history shifted by one": Fault(
        history_shifted_by_one, "answer.logprobs", "one pass over the same ids agrees, so generation itself"
    ),
    "another codebook": Fault(another_codebook, "codec.latents"),
}
