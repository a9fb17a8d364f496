"""Requests to the engine: a prompt of tokens, audio and embeddings, checked before it is sent.

An embedding of the wrong width would end vLLM's engine, and other mistakes would be reported after the work has begun.
This file knows no model and does not import vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.core.errors import BadInput


@dataclass(frozen=True, eq=False)
class Request:
    """A prompt. The audio token appears once at each recording's position; the model's front end repeats it."""

    ids: Sequence[int]
    audio: np.ndarray | Sequence[np.ndarray] | None = None  # mono float32 samples at 16 kHz; several recordings
    audio_tokens: int = 0  # the number of positions that the audio takes
    audio_options: Mapping[str, Any] = field(default_factory=dict)  # options of the front end
    embeddings: np.ndarray | None = None  # [len(ids), hidden]
    # bool [len(ids)]: true where the embedding's row replaces the id; None means everywhere.
    is_embedding: np.ndarray | None = None
    capture: int = 0  # the number of the capture of its prompt's stages; 0 for none
    salt: str = ""  # only requests with the same one share what is cached of their prompts

    @property
    def recordings(self) -> Sequence[np.ndarray]:
        """The recordings in their order in the prompt."""
        if self.audio is None:
            return ()
        return (self.audio,) if isinstance(self.audio, np.ndarray) else self.audio

    @property
    def positions(self) -> int:
        """The length of the prompt for the language model."""
        return len(self.ids) + self.audio_tokens - len(self.recordings)


@dataclass(frozen=True)
class Limits:
    """The limits of an engine's requests."""

    hidden_size: int
    vocabulary: int  # ids must be smaller
    max_length: int  # positions of prompt and answer together
    accepts_audio: bool = True  # whether a prompt may contain audio


def check_request(request: Request, limits: Limits) -> None:
    """Raises `BadInput` for a request that the engine would refuse, or that would end it.

    The prompt must leave room for one token; at `max_length` an answer ends.
    """
    if not len(request.ids):
        raise BadInput("the prompt is empty; expected at least one token")
    for number in request.ids:
        if not 0 <= number < limits.vocabulary:
            raise BadInput(f"the prompt has the token {number}; expected numbers from 0 to {limits.vocabulary - 1}")
    if request.positions >= limits.max_length:
        raise BadInput(
            f"the prompt has {request.positions} positions, and the engine was started for {limits.max_length} of "
            "prompt and answer together; shorten it, or open the model with a larger max_length if it has more"
        )
    if request.recordings:
        if not limits.accepts_audio:
            raise BadInput("the request has sound, and the model takes text alone")
        _check_audio(request)
    if request.embeddings is not None:
        _check_embeddings(request, request.embeddings, limits)
    elif request.is_embedding is not None:
        raise BadInput("the request has positions of embeddings and no embeddings; expected both or neither")


def _check_audio(request: Request) -> None:
    if request.embeddings is not None:
        raise BadInput("the prompt has sound and embeddings; expected one of them")
    for samples in request.recordings:
        if samples.ndim != 1 or not len(samples):
            raise BadInput(f"the sound has shape {samples.shape}; expected mono samples (n,)")
        if not np.isfinite(samples).all():
            raise BadInput("the sound holds values that are not finite; expected samples from -1 to 1")
    if request.audio_tokens < 1:
        raise BadInput("the sound is too short for the model; expected a few hundredths of a second")


def _check_embeddings(request: Request, embeddings: np.ndarray, limits: Limits) -> None:
    expected = (len(request.ids), limits.hidden_size)
    if embeddings.shape != expected:
        raise BadInput(
            f"the embeddings have shape {embeddings.shape}; expected {expected}, a row of the model's hidden size for "
            "each position of the prompt"
        )
    if embeddings.dtype.kind != "f":
        raise BadInput(f"the embeddings hold {embeddings.dtype}; expected floating point")
    where = request.is_embedding
    if where is not None and (where.shape != expected[:1] or where.dtype != np.bool_):
        raise BadInput(
            f"is_embedding has shape {where.shape} and type {where.dtype}; expected a truth value for each of the "
            f"{expected[0]} positions"
        )
    counted = embeddings if where is None else embeddings[where]
    if not np.isfinite(counted).all():
        row = int(np.argmin(np.isfinite(counted).all(axis=1)))
        raise BadInput(f"row {row} of the embeddings holds values that are not finite; expected numbers")
