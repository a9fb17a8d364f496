"""SenseVoice around its network: features and queries before it, text, tags and times after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.core.resources import close
from workbench.decoding.ctc import collapse
from workbench.families.sensevoice import (
    UNKNOWN_EMOTION,
    SenseVoiceModel,
    SenseVoiceOptions,
    query_ids,
    read_tags,
    timed_tokens,
)
from workbench.pipelines.features import Features
from workbench.pipelines.speech_session import Recognition
from workbench.pipelines.traced import traced
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.trace import StageFilter


class SenseVoiceNetwork(Protocol):
    """The network that each runtime implements: query frames, encoder, CTC head."""

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        ...

    def logits(self, features: np.ndarray, queries: tuple[int, ...], recorder: Recorder | None) -> Iterator[np.ndarray]:
        """Yields blocks of CTC logits, together [len(queries) + T, V], in float32 or wider; records `encoder.*`.

        Blocks save memory: tens of thousands of values per frame of a long recording need more memory than the weights.

        Args:
            features: [T, input], after LFR and CMVN.
            queries: rows of the query embedding that are put before the features.
        """
        ...


class SenseVoicePipeline:
    """Recognises one chunk of speech with a loaded SenseVoice (see `Recogniser`)."""

    options_class = SenseVoiceOptions

    def __init__(self, model: SenseVoiceModel, cmvn: Cmvn | None, network: SenseVoiceNetwork):
        self.model = model
        self.network = network
        self.features = Features(model.frontend, cmvn)
        self.unknown_emotion = model.vocabulary.ids.get(UNKNOWN_EMOTION)

    @property
    def dtype(self) -> str:
        """The name of the type that the network computes in."""
        return self.network.dtype

    def recognise(
        self, samples: np.ndarray, options: SenseVoiceOptions, recorder: Recorder | None = None
    ) -> Recognition:
        """Returns what is said in float32 samples [n] at the checkpoint's rate."""
        features = self.features(samples, options, recorder)
        blocks = self.network.logits(features, query_ids(options), recorder)
        if recorder and (recorder.needs("logits") or recorder.wanted("ctc.posteriors")):
            logits = recorder.put("logits", np.concatenate([*blocks]))
            if recorder.wanted("ctc.posteriors"):
                recorder.put("ctc.posteriors", _softmax(logits))
            blocks = iter([logits])
        path = collapse(np.concatenate([self._best(block, options) for block in blocks]), self.model.blank)
        vocabulary = self.model.vocabulary
        pieces = [vocabulary.pieces[token.id] for token in path]
        language, tags = read_tags(pieces)
        tokens = timed_tokens(path, vocabulary, len(features), self.model.frontend.frame_seconds)
        return Recognition(
            text=self.text_of([token.id for token in tokens]),
            language=language,
            tags=tags,
            tokens=tokens,
            ids=tuple(token.id for token in path),
        )

    def _best(self, logits: np.ndarray, options: SenseVoiceOptions) -> np.ndarray:
        """Returns the likeliest id of each frame [T] from logits [T, V]."""
        best: np.ndarray = logits.argmax(axis=1)
        if options.ban_emo_unk and self.unknown_emotion is not None:
            banned = np.flatnonzero(best == self.unknown_emotion)
            others = logits[banned]
            others[:, self.unknown_emotion] = -np.inf
            best[banned] = others.argmax(axis=1)
        return best

    def text_of(self, ids: Sequence[int]) -> str:
        """Returns the text of some of the visible tokens."""
        return self.model.vocabulary.text(ids).strip()

    def trace(
        self, samples: np.ndarray, options: SenseVoiceOptions, wanted: StageFilter, given: Stages | None = None
    ) -> dict[str, np.ndarray]:
        """See `workbench.pipelines.speech_session.Recogniser.trace`."""
        return traced(self.recognise, samples, options, wanted, given)

    def close(self) -> None:
        """Frees the network."""
        close(self.network)


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities [frames, vocabulary] of the logits, in their type."""
    powers: np.ndarray = logits - logits.max(axis=1, keepdims=True)
    np.exp(powers, out=powers)
    powers /= powers.sum(axis=1, keepdims=True)
    return powers
