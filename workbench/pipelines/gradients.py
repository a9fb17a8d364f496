"""Records how a written token depends on the filter bank: the gradient of its ln P, as stages of a trace.

A network gives the gradient with respect to its features. The front end, which is linear, takes it back to the filter
bank. For a CTC head, ln P of a token is taken in the frame where it is likeliest; for a decoder, given all tokens
before it. This file knows no network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from workbench.decoding.ctc_alignment import best_alignment
from workbench.trace.gradients import gradient_stage
from workbench.trace.recorder import Recorder

Choice = tuple[int, int]
"""A row of logits, and the token that was chosen there."""

Choose = Callable[[np.ndarray], Sequence[Choice]]
"""Returns the choices to look at from logits [rows, vocabulary]."""

GradientsOf = Callable[[Sequence[int], Sequence[int]], Iterator[np.ndarray]]
"""Yields for ids, and the places of some of them, the gradient [frames, mels] of each of these."""


@runtime_checkable
class Differentiates(Protocol):
    """A network of one pass whose runtime computes gradients."""

    def gradients(self, features: np.ndarray, choose: Choose, **network_inputs: Any) -> Iterator[np.ndarray]:
        """Yields the gradient of each choice's ln P with respect to the features [T, input].

        Args:
            network_inputs: what the network takes beside features.
        """
        ...


@runtime_checkable
class DifferentiatesLanguage(Protocol):
    """A language model whose runtime computes gradients."""

    def gradients(self, prompt: Any, ids: Sequence[int], places: Sequence[int]) -> Iterator[Any]:
        """Yields the gradients of ln P of some tokens of an answer, given the prompt and the tokens before them.

        Each is with respect to the prompt's embeddings [positions, hidden], as an array of the runtime.

        Args:
            prompt: a `workbench.embeddings.merge.Merged` of one row.
            ids: the answer.
            places: of the tokens in it.
        """
        ...


@runtime_checkable
class DifferentiatesFeatures(Protocol):
    """A network from features to embeddings of sound whose runtime computes gradients."""

    def input_gradient(self, features: np.ndarray, gradient: Any, **network_inputs: Any) -> np.ndarray:
        """Returns the gradient with respect to the features [T, input], from that of the embeddings [frames, hidden].

        Args:
            network_inputs: what the network takes beside features.
        """
        ...


@runtime_checkable
class DifferentiatesRecordings(Protocol):
    """An audio encoder of a family, around a network that `DifferentiatesFeatures`."""

    def input_gradient(self, samples: np.ndarray, options: Any, gradient: Any) -> np.ndarray:
        """Returns the gradient with respect to the filter bank [frames, mels], from that of the embeddings of sound.

        Args:
            gradient: [embeddings, hidden], an array of the runtime.
        """
        ...


def record_gradients(recorder: Recorder, ids: Sequence[int], gradients_of: GradientsOf | None) -> None:
    """Records the gradients that are wanted of written ids; none of a pass from given stages.

    Args:
        gradients_of: None where the runtime computes no gradients.
    """
    places = [place for place in range(len(ids)) if recorder.wanted(gradient_stage(place))]
    if not places or gradients_of is None or recorder.isolated:
        return
    for place, gradient in zip(places, gradients_of(ids, places), strict=True):
        recorder.put(gradient_stage(place), gradient)


def frames_of(logits: np.ndarray, ids: Sequence[int], blank: int) -> list[int]:
    """Returns for each token of a CTC result the frame where it is likeliest, on the best alignment of all.

    Args:
        logits: [frames, vocabulary].
    """
    columns, places = np.unique([blank, *ids], return_inverse=True)
    highest = logits.max(axis=1, keepdims=True)
    log_sums = highest + np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))
    scores = (logits[:, columns] - log_sums).astype(np.float64)
    aligned = best_alignment(scores, places[1:].tolist(), int(places[0])) or ()
    return [token.first + int(scores[token.first : token.end, token.id].argmax()) for token in aligned]
